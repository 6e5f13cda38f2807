package kit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fetch gets a page of an admin endpoint.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := readBounded(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, res.Status, b)
	}
	return b, err
}

// Counters are metrics, summed over nodes and over all labels except request. The value of request
// is appended to the name.
type Counters map[string]float64

// Count reads the metrics of all nodes.
func Count(ctx context.Context, admins []string) (Counters, error) {
	sum := Counters{}
	for _, a := range admins {
		b, err := Fetch(ctx, "http://"+a+"/metrics")
		if err != nil {
			return nil, err
		}
		sum.add(b)
	}
	return sum, nil
}

// add parses the text format of Prometheus.
func (c Counters) add(page []byte) {
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		labels := ""
		if open := strings.IndexByte(lines.Text(), '{'); open >= 0 {
			shut := strings.LastIndexByte(lines.Text(), '}')
			if shut < open {
				continue
			}
			name, labels, value = lines.Text()[:open], lines.Text()[open+1:shut], strings.TrimSpace(lines.Text()[shut+1:])
		}
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || strings.HasPrefix(name, "#") {
			continue
		}
		for label := range strings.SplitSeq(labels, ",") {
			if what, ok := strings.CutPrefix(label, "request="); ok {
				name += "/" + strings.Trim(what, `"`)
			}
		}
		c[name] += n
	}
}

// Since returns by how much a counter grew.
func (c Counters) Since(before Counters, name string) float64 { return c[name] - before[name] }
