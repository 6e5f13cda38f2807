package redis

import (
	"strconv"
	"strings"

	"github.com/freshet-cache/freshet/resp"
)

// Texts of errors as Redis has them. Clients match on some of them.
const (
	ErrSyntax   = "ERR syntax error"
	ErrInteger  = "ERR value is not an integer or out of range"
	errFloat    = "ERR value is not a valid float"
	errOverflow = "ERR increment or decrement would overflow"
	errExpire   = "ERR invalid expire time in '%s' command"
	errOffset   = "ERR offset is out of range"
	ErrTooLong  = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

func number01(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Unpaired answers for a key without a value.
func Unpaired(args [][]byte, w *resp.Writer) bool {
	if len(args)%2 == 0 {
		w.Error("ERR wrong number of arguments for '" + Lower(args[0]) + "' command")
	}
	return len(args)%2 == 0
}

// Integer reads what Redis takes for one: no sign plus, no spaces, no zeros in front.
func Integer(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || len(b) > 1 && (b[0] == '+' || b[0] == '0') || len(b) > 2 && b[0] == '-' && b[1] == '0' {
		return 0, false
	}
	return n, string(b) != "-0"
}

// Lower is a name in small letters.
func Lower(b []byte) string { return strings.ToLower(string(b)) }
