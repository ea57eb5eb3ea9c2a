package rows

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// keyList is the keys of entities, by group.
type keyList []string

func (k keyList) Key(group int) (string, bool) {
	if group >= len(k) {
		return "", false
	}
	return k[group], true
}

// keyedLayout is a layout of ten entities with a number of key columns.
func keyedLayout(columns int) Layout {
	l := Layout{Candidates: []string{"normal", "odd"}, Features: []string{"value"}}
	var keys keyList
	for i := range 10 {
		var values []string
		for c := range columns {
			values = append(values, "entity \"é\" "+strconv.Itoa(i*columns+c))
		}
		keys = append(keys, JoinKey(values))
	}
	for c := range columns {
		l.Keys = append(l.Keys, "key"+strconv.Itoa(c))
	}
	l.Entities = keys
	return l
}

// keyedBatch makes a batch of n decisions.
func keyedBatch(r *rand.Rand, n int) *batch.Decisions {
	d := &batch.Decisions{Candidates: 2}
	for i := range n {
		d.Group, d.Row = append(d.Group, uint32(r.IntN(10))), append(d.Row, uint64(i+1))
		d.Read, d.Timestamp = append(d.Read, 1), append(d.Timestamp, strconv.Itoa(i))
		d.Value, d.Score = append(d.Value, r.NormFloat64()), append(d.Score, r.Float32())
		d.Decision = append(d.Decision, uint32(r.IntN(2)))
		d.Counts = append(d.Counts, r.Uint32(), r.Uint32())
		d.Leader, d.Round = append(d.Leader, r.Uint64()), append(d.Round, uint64(i))
	}
	return d
}

// TestPipeline: the bytes equal the output of an encoder that gets the decisions one after the
// other.
func TestPipeline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, format := range []Format{"csv", "ndjson", "arrow", "parquet"} {
		for columns := 1; columns <= 3; columns++ {
			var want, got bytes.Buffer
			one, _, err := NewEncoder(format, keyedLayout(columns))
			if err != nil {
				t.Fatalf("New: %v, want no error", err)
			}
			enc, _, err := NewEncoder(format, keyedLayout(columns))
			if err != nil {
				t.Fatalf("New: %v, want no error", err)
			}
			if err := errors.Join(one.Begin(&want), enc.Begin(&got)); err != nil {
				t.Fatalf("Begin: %v, want no error", err)
			}
			p := NewPipeline(enc, 1+r.IntN(4))
			for range 20 {
				d := keyedBatch(r, r.IntN(200))
				for i := range d.Group {
					if err := one.Piece(0, bytes.NewReader(one.Spool(nil, d, i))); err != nil {
						t.Fatalf("Piece: %v, want no error", err)
					}
				}
				if err := p.Add(d); err != nil {
					t.Fatalf("Add: %v, want no error", err)
				}
			}
			if err := errors.Join(p.Close(), p.Close(), one.End(), enc.End()); err != nil {
				t.Fatalf("the end: %v, want no error", err)
			}
			if want.Len() == 0 || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%s, %d key columns: %d bytes differ from the %d of one encoder", format, columns, got.Len(),
					want.Len())
			}
		}
	}
}

var errFull = errors.New("full")

// fullWriter takes the header and nothing else.
type fullWriter struct{ calls int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.calls++; w.calls > 1 {
		return 0, errFull
	}
	return len(p), nil
}

// TestPipelineFails: a later Add and Close return the error of the writer, and no call waits.
func TestPipelineFails(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	enc, _, err := NewEncoder("csv", keyedLayout(1))
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	if err := enc.Begin(&fullWriter{}); err != nil {
		t.Fatalf("Begin: %v, want no error", err)
	}
	p := NewPipeline(enc, 2)
	for err = nil; err == nil; {
		err = p.Add(keyedBatch(r, 10))
	}
	if !errors.Is(err, errFull) {
		t.Errorf("Add: %v, want %v", err, errFull)
	}
	if err := p.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v, want %v", err, errFull)
	}
}
