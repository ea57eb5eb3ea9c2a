package rows

import (
	"runtime"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLongRecords reads records of a megabyte with short timestamps: a batch must not hold on to
// them.
func TestLongRecords(t *testing.T) {
	text := "timestamp,value,note\n" + strings.Repeat("2026-01-02 03:04:05,1,"+strings.Repeat("x", 1<<19)+"\n", 2)
	r, err := newCSVReader("a.csv", fixture.TempFile(t, []byte(text)), valueSpec, nil)
	if err != nil {
		t.Fatalf("newCSVReader: %v, want no error", err)
	}
	rows, _, err := drainRows(t, r)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v, want 2", len(rows), err)
	}
	var kept []string
	for range 64 {
		r, err := newCSVReader("a.csv", fixture.TempFile(t, []byte(text)), valueSpec, nil)
		if err != nil {
			t.Fatalf("newCSVReader: %v, want no error", err)
		}
		rows, _, err := drainRows(t, r)
		if err != nil {
			t.Fatalf("drainRows: %v, want no error", err)
		}
		kept = append(kept, rows[0].Timestamp, rows[1].Timestamp)
	}
	if heap := heapInUse(); heap > 32<<20 {
		t.Errorf("%d timestamps hold %d MB", len(kept), heap>>20)
	}
}

// TestOpenQuote reads a quote that never closes before a million short lines: what is read ahead is
// counted, and freed.
func TestOpenQuote(t *testing.T) {
	text := "timestamp,value\n\"" + strings.Repeat("\n", 1<<20) + "2026-01-02 03:04:05,1\n"
	m := access.NewMemoryParts(16<<20, 16<<20)
	h := m.Hold(t.Context(), "s")
	r, err := newCSVReader("s", fixture.TempFile(t, []byte(text)), valueSpec, h)
	if err != nil {
		t.Fatalf("newCSVReader: %v, want no error", err)
	}
	if _, rejected, err := r.Next(); err != nil || rejected == nil || rejected.Line != 2 {
		t.Fatalf("reject %v, %v, want one of line 2", rejected, err)
	}
	if used := m.Used(); used < 1<<20 || used > 4<<20 {
		t.Errorf("%d bytes are read ahead", used)
	}
	before := heapInUse()
	if before > 64<<20 {
		t.Errorf("a read-ahead of 1 MiB takes %d MB", before>>20)
	}
	if out, rejected, err := r.Next(); err != nil || rejected != nil || out.Number != 2 {
		t.Fatalf("row %+v, reject %v, %v, want row 2", out, rejected, err)
	}
	if _, _, err := r.Next(); err == nil {
		t.Fatal("there is a third row")
	}
	if used := m.Used(); used != 0 {
		t.Errorf("%d bytes are still taken", used)
	}
	if err := r.Close(); err != nil {
		t.Errorf("r.Close: %v, want no error", err)
	}
}
