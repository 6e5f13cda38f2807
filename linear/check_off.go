//go:build !freshetcheck

package linear

// checkAlways makes every step check the whole state of the machine.
const checkAlways = false
