package kit

// WithKey are the rows that have a value for key.
func WithKey(rows []Row, key string) (out []Row) {
	for _, r := range rows {
		if _, ok := r[key]; ok {
			out = append(out, r)
		}
	}
	return out
}
