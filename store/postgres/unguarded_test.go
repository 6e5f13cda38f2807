package postgres

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

// A table that a view reads, and that is not guarded, is named once, with what guards it;
// at the start it is said that nothing is guarded.
func TestUnguardedTablesPgx(t *testing.T) { testUnguarded(t, byPgx) }
func TestUnguardedTablesSQL(t *testing.T) { testUnguarded(t, bySQL) }

func testUnguarded[T any](t *testing.T, by func(testing.TB, Options) way[T]) {
	var log bytes.Buffer
	opt := Options{URL: fresh(t, Migration{}), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s := openShop(t, by(t, opt))
	named := func() string {
		defer log.Reset()
		var out []string
		for _, m := range regexp.MustCompile(`msg="(no table is guarded|a view reads the table \S+\.(\w+),)`).FindAllStringSubmatch(log.String(), -1) {
			out = append(out, m[2])
		}
		return fmt.Sprintf("%q", out)
	}
	if got := named(); got != `[""]` {
		t.Errorf("at the start it says %s", got)
	}
	if err := s.run("SELECT $s.guard_table('$s.orders', 'order:{id}')"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, _, err := s.view.Get(t.Context(), fmt.Sprint("order:", i)); err != nil {
			t.Fatal(err)
		}
	}
	text := log.String()
	if got := named(); got != `["lines"]` {
		t.Errorf("it names %s", got)
	}
	if !strings.Contains(text, "guard_table('"+s.s.schemaName()+".lines'") {
		t.Errorf("it does not say what to do: %s", text)
	}
	if err := s.run("SELECT $s.guard_table('$s.lines', 'order:{order_id}')"); err != nil {
		t.Fatal(err)
	}
	again := openShopAgain(t, by(t, opt))
	for i := range 10 {
		if _, _, err := again.view.Get(t.Context(), fmt.Sprint("order:", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := named(); got != `[]` {
		t.Errorf("with all guarded, it names %s", got)
	}
}
