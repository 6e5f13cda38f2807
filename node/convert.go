package node

import "unsafe"

// view looks at bytes as a string for as long as they do not change: for look-ups.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// flag is a byte that says yes or no, as numbers do.
func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
