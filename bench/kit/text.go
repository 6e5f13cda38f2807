package kit

import (
	"fmt"
	"math"
)

// Text formats a number for a table, with as many digits as matter.
func Text(v any) string {
	switch v := v.(type) {
	case Spread:
		return fmt.Sprintf("%s (%s..%s)", Text(v.Median), Text(v.Min), Text(v.Max))
	case float64:
		switch a := math.Abs(v); {
		case a >= 10_000:
			return fmt.Sprintf("%.0f", v)
		case a >= 100:
			return fmt.Sprintf("%.1f", v)
		case a >= 1 || a == 0:
			return fmt.Sprintf("%.2f", v)
		}
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprint(v)
}
