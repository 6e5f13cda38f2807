package redis

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// INCRBYFLOAT adds with 64 bits of mantissa and prints 17 digits behind the point,
// as Redis does where a long double has 80 bits: 0.1 and 0.2 are 0.3.
const (
	mantissa    = 64
	maxDecimal  = 5 << 10 // characters of a number
	maxExponent = 16384   // of two
)

func decimal() *big.Float { return new(big.Float).SetPrec(mantissa) }

// parseDecimal reads what C's strtold reads, but no NaN.
func parseDecimal(b []byte) (*big.Float, bool) {
	s := strings.ToLower(string(b))
	if s == "" || len(s) >= maxDecimal || strings.ContainsRune(s, '_') {
		return nil, false
	}
	digits := strings.TrimLeft(s[:1], "+-") + s[1:]
	switch digits {
	case "inf", "infinity":
		return decimal().SetInf(s[0] == '-'), true
	}
	base, mark := 10, "e"
	if hex, ok := strings.CutPrefix(digits, "0x"); ok {
		base, mark = 16, "p"
		s = strings.TrimSuffix(s, digits) + hex
	}
	if _, exp, ok := strings.Cut(s, mark); ok { // a huge power must not be computed to be refused
		if n, err := strconv.Atoi(exp); err != nil || n > maxExponent+maxDecimal || n < -maxExponent-maxDecimal {
			return nil, false
		}
	}
	f, _, err := decimal().Parse(s, base)
	if err != nil || f.IsInf() || f.MantExp(nil) > maxExponent || f.MantExp(nil) < -maxExponent {
		return nil, false
	}
	return f, true
}

func incrFloat(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	n, ok1 := decimal(), true
	if e.Exists {
		n, ok1 = parseDecimal([]byte(e.Value))
	}
	by, ok2 := parseDecimal(args[2])
	switch {
	case !ok1 || !ok2:
		w.Error(errFloat)
		return
	case n.IsInf() || by.IsInf() || n.Add(n, by).MantExp(nil) > maxExponent:
		w.Error("ERR increment would produce NaN or Infinity")
		return
	}
	text := n.Text('f', 17)
	text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	if text == "-0" {
		text = "0"
	}
	x.Set(args[1], text, linear.KeepTTL)
	w.BulkString(text)
}
