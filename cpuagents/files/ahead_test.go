package files

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// listReader returns the rows of a list, then an error.
type listReader struct {
	list   []readRow
	err    error
	closed bool
}

func (l *listReader) Next() (rows.Row, *rows.Reject, error) {
	if len(l.list) == 0 {
		return rows.Row{}, nil, l.err
	}
	next := l.list[0]
	l.list = l.list[1:]
	return next.row, next.rejected, nil
}

func (l *listReader) Close() error {
	l.closed = true
	return nil
}

// listOf makes n rows. Some are rejects, and some have long keys.
func listOf(r *rand.Rand, n int) (list []readRow) {
	for i := range n {
		row := rows.Row{Number: uint64(i + 1), Key: strings.Repeat("k", r.IntN(rows.MaxKey))}
		if r.IntN(4) == 0 {
			list = append(list, readRow{rejected: &rows.Reject{Row: row.Number, Reason: "damaged"}})
			continue
		}
		list = append(list, readRow{row: row})
	}
	return list
}

func openAhead(ctx context.Context, t *testing.T, l *listReader) rows.Reader {
	t.Helper()
	a, err := Ahead(ctx, func(context.Context) (rows.Reader, error) { return l, nil }, nil)
	if err != nil {
		t.Fatalf("Ahead: %v, want no error", err)
	}
	return a
}

// TestAhead: the rows, the rejects and the error equal the reader's, in their order.
func TestAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, aheadRows - 1, aheadRows, aheadRows + 1, 5000, r.IntN(5000)} {
		for _, end := range []error{io.EOF, errors.New("damaged")} {
			want := listOf(r, n)
			l := &listReader{list: want, err: end}
			a := openAhead(t.Context(), t, l)
			var got []readRow
			var err error
			for {
				var next readRow
				if next.row, next.rejected, err = a.Next(); err != nil {
					break
				}
				got = append(got, next)
			}
			if len(got) != n || n > 0 && !reflect.DeepEqual(got, want) || !errors.Is(err, end) {
				t.Errorf("%d rows of %d, %v, want all in their order, and %v", len(got), n, err, end)
			}
			if _, _, err := a.Next(); !errors.Is(err, end) {
				t.Errorf("Next at the end: %v, want %v", err, end)
			}
			if err := a.Close(); err != nil || !l.closed {
				t.Errorf("Close: %v, closed %v", err, l.closed)
			}
		}
	}
}

// TestAheadEnds: Close ends the reading of a source that is not at its end, and the end of the
// context does so too.
func TestAheadEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := &listReader{list: listOf(r, 50_000), err: io.EOF}
	a := openAhead(t.Context(), t, l)
	if _, _, err := a.Next(); err != nil {
		t.Fatalf("a.Next: %v, want no error", err)
	}
	if err := a.Close(); err != nil || !l.closed || len(l.list) == 0 {
		t.Errorf("Close: %v, closed %v, %d rows left", err, l.closed, len(l.list))
	}
	ended := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	a = openAhead(ctx, t, &listReader{list: listOf(r, 50_000), err: io.EOF})
	cancel(ended)
	var err error
	for err == nil {
		_, _, err = a.Next()
	}
	if !errors.Is(err, ended) {
		t.Errorf("Next after the end of the context: %v, want %v", err, ended)
	}
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v, want no error", err)
	}
	open := func(context.Context) (rows.Reader, error) { return nil, ended }
	if _, err := Ahead(t.Context(), open, nil); !errors.Is(err, ended) {
		t.Errorf("Ahead: %v, want %v", err, ended)
	}
}
