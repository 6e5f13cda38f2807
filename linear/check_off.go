//go:build !freshetcheck

package linear

// checkAlways makes every step check the machine's whole state.
const checkAlways = false
