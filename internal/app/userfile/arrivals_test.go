package userfile

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// TestArrivals: the parts of a document have the times at which they were read, also parts that
// wait for the end of their record, and the header that a document repeats belongs to its first.
func TestArrivals(t *testing.T) {
	r, w := io.Pipe()
	l := Cut("a.csv", "csv", dialect.CSV{}, r)
	t.Cleanup(func() { _ = l.Close(); _ = w.Close() })
	began := time.Now()
	// put writes a part, and waits until all before is read.
	put := func(text string) time.Time {
		t.Helper()
		at := time.Now()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(nil); err != nil {
			t.Fatal(err)
		}
		return at
	}
	check := func(n uint64, want string, ends []int, since []time.Time) {
		t.Helper()
		doc := bytes.TrimPrefix(l.Answer(n), []byte(source.InputDocument))
		if string(doc) != want {
			t.Fatalf("document %d is %q, want %q", n, doc, want)
		}
		got := l.Arrivals(nil)
		if len(got) != len(ends) {
			t.Fatalf("document %d has the arrivals %v, want ends %v", n, got, ends)
		}
		for i, a := range got {
			if a.End != ends[i] || a.At.Before(since[i]) || i > 0 && a.At.Before(got[i-1].At) {
				t.Errorf("part %d of document %d arrived as %+v, want end %d, after %v", i, n, a, ends[i], since[i])
			}
		}
	}
	put("h\n1\n2\n")
	check(1, "h\n1\n2\n", []int{6}, []time.Time{began})
	half := put("3")
	<-time.After(2 * time.Millisecond) // the halves arrive at different times
	rest := put("4\n5")
	check(2, "h\n34\n", []int{3, 5}, []time.Time{half, rest})
	if a := l.Arrivals(nil)[0].At; !a.Before(rest) {
		t.Errorf("half a record arrived at %v, want a time before the other half, %v", a, rest)
	}
	last := put("\n")
	check(3, "h\n5\n", []int{3, 4}, []time.Time{rest, last})
}
