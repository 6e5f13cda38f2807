//go:build freshetcheck

package linear

const checkAlways = true
