package linear

import (
	"reflect"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/linear/replica"
)

func TestMessages(t *testing.T) {
	for _, m := range []replica.Message{
		replica.Cacheable{Gen: 7},
		replica.Invalidate{Gen: 7, N: 1 << 40},
		replica.Finish{Gen: 7, N: 2},
		replica.Finish{Gen: 7, N: 2, Row: &replica.Row{Exists: true, Version: 9, Value: []byte("v")}},
		replica.Finish{Gen: 7, N: 2, Row: &replica.Row{Version: 9}},
		replica.Report{Gen: 7, N: 3, Open: true, From: "n1/abc"},
		replica.Report{Gen: 7, From: "n1/abc"},
	} {
		b := appendMessage(nil, m)
		got, ok := decodeMessage(b)
		if !ok || !reflect.DeepEqual(got, m) {
			t.Errorf("%#v came back as %#v", m, got)
		}
		for i := range b {
			if short, ok := decodeMessage(b[:i]); ok && reflect.DeepEqual(short, m) {
				t.Errorf("%#v is the same without its end", m)
			}
		}
	}
	large := replica.Finish{Gen: 7, N: 2, Row: &replica.Row{Exists: true, Value: []byte(strings.Repeat("v", mostAlong+1))}}
	if got, ok := decodeMessage(appendMessage(nil, large)); !ok || !reflect.DeepEqual(got, replica.Finish{Gen: 7, N: 2}) {
		t.Errorf("a large value went along: %v", ok)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(appendMessage(nil, replica.Finish{Gen: 7, N: 2, Row: &replica.Row{Exists: true, Version: 9, Value: []byte("v")}}))
	f.Add(appendMessage(nil, replica.Report{Gen: 7, N: 3, Open: true, From: "n1/abc"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := decodeMessage(b)
		if !ok {
			return
		}
		if fin, is := m.(replica.Finish); is && fin.Row != nil && len(fin.Row.Value) > mostAlong {
			return
		}
		if again, ok := decodeMessage(appendMessage(nil, m)); !ok || !reflect.DeepEqual(again, m) {
			t.Errorf("%#v comes back as %#v", m, again)
		}
	})
}
