package cpuagents

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/internal/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// memoryOf returns a memory of inputs with parts of so many bytes.
func memoryOf(side, alone int64) *Memory {
	return &Memory{side: memory.NewBudget(side), alone: memory.NewBudget(alone)}
}

// TestSpill reads every form of a source beside others and alone: rows, rejects and errors are the same, and all memory is given back.
func TestSpill(t *testing.T) {
	var rows []sample
	for i := range blockRows + 1000 {
		s := sample{stamp: fmt.Sprintf("2026-01-02 03:%02d:%02d", i/60%60, i%60), values: []cell{float64(i), -float64(i)}}
		if i%7 == 0 {
			s.values[1] = nil
		}
		rows = append(rows, s)
	}
	for _, w := range writings(t, rows) {
		for name, data := range map[string][]byte{"whole": w.data, "cut": w.data[:len(w.data)*2/3]} {
			c := writing{w.name, w.format, data}
			spec := pairSpec
			spec.AnyOrder = true
			want, wantRejects, wantErr := readWriting(t, c, spec, plenty)
			memories := []*Memory{memoryOf(0, 64<<20)}
			if name == "whole" {
				memories = append(memories, memoryOf(1<<30, 1<<30), memoryOf(300<<10, 64<<20), memoryOf(1<<20, 64<<20))
			}
			for _, m := range memories {
				files := &Files{scratch: t.TempDir(), unpacked: plenty, memory: m, state: &scratchState{}}
				r, err := files.read(t.Context(), "s", tempFile(t, c.data), c.format, spec)
				var got []row
				var rejects []reject
				if err == nil {
					got, rejects, err = drainRows(t, r)
				}
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(rejects, wantRejects) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Errorf("%s, %s, %d beside others: %d rows, %d rejects, %v; want %d, %d, %v", w.name, name, m.side.Limit(), len(got), len(rejects), err, len(want), len(wantRejects), wantErr)
				}
				if side, alone := m.side.Used(), m.alone.Used(); side != 0 || alone != 0 {
					t.Errorf("%s, %s: %d and %d bytes are still taken", w.name, name, side, alone)
				}
			}
		}
	}
}

// TestSpillWaits has a source wait for the memory that another one has, until its context ends.
func TestSpillWaits(t *testing.T) {
	m := memoryOf(0, 64<<20)
	if !m.alone.Try(1) {
		t.Fatal("Try")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	w := writings(t, []sample{{stamp: "2026-01-02 03:04:05", values: []cell{1.0, 2.0}}})
	for _, c := range w {
		files := &Files{scratch: t.TempDir(), unpacked: plenty, memory: m, state: &scratchState{}}
		r, err := files.read(ctx, "s", tempFile(t, c.data), c.format, pairSpec)
		if err == nil {
			_, _, err = drainRows(t, r)
		}
		if strings.HasPrefix(string(c.format), "csv") || strings.HasPrefix(string(c.format), "ndjson") && !strings.HasSuffix(string(c.format), "zst") {
			continue // they need none
		}
		if !errors.Is(err, jobs.ErrDrain) {
			t.Errorf("%s: %v, want the cause of the context", c.name, err)
		}
	}
}

// TestTooMuchMemory reads sources that need more than there is for one: a sentence with the numbers.
func TestTooMuchMemory(t *testing.T) {
	big, err := zstd.NewWriter(nil, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	var packed bytes.Buffer
	big.Reset(&packed)
	if _, err := big.Write(bytes.Repeat([]byte("timestamp,value\n"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := big.Close(); err != nil {
		t.Fatal(err)
	}
	footer := binary.LittleEndian.AppendUint32(append([]byte{0x19, 0xfc, 0xa0, 0x8d, 0x06}, make([]byte, 100_001)...), 100_006) // a list of 100,000 empty structures
	parquet := append([]byte("PAR1"), append(footer, "PAR1"...)...)
	for name, c := range map[string]writing{
		"window": {"", "csv.zst", packed.Bytes()},
		"footer": {"", "parquet", parquet},
	} {
		files := &Files{scratch: t.TempDir(), unpacked: plenty, memory: memoryOf(1<<20, 4<<20), state: &scratchState{}}
		r, err := files.read(t.Context(), "s", tempFile(t, c.data), c.format, valueSpec)
		if err == nil {
			_, _, err = drainRows(t, r)
		}
		if !isInput(err) || !strings.Contains(err.Error(), "raise the agent's --memory") || !strings.Contains(err.Error(), "4 MiB") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongRecords reads records of a megabyte with short timestamps: a batch must not hold on to them.
func TestLongRecords(t *testing.T) {
	text := "timestamp,value,note\n" + strings.Repeat("2026-01-02 03:04:05,1,"+strings.Repeat("x", 1<<19)+"\n", 2)
	r, err := newCSVReader("a.csv", tempFile(t, []byte(text)), valueSpec, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := drainRows(t, r)
	if err != nil || len(rows) != 2 {
		t.Fatal(len(rows), err)
	}
	var kept []string
	for range 64 {
		r, err := newCSVReader("a.csv", tempFile(t, []byte(text)), valueSpec, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, _, err := drainRows(t, r)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, rows[0].timestamp, rows[1].timestamp)
	}
	if heap := heapInUse(); heap > 32<<20 {
		t.Errorf("%d timestamps hold %d MB", len(kept), heap>>20)
	}
}

// TestOpenQuote reads a quote that never closes before a million short lines: what is read ahead is counted, and freed.
func TestOpenQuote(t *testing.T) {
	text := "timestamp,value\n\"" + strings.Repeat("\n", 1<<20) + "2026-01-02 03:04:05,1\n"
	m := memoryOf(16<<20, 16<<20)
	h := m.hold(t.Context(), "s")
	r, err := newCSVReader("s", tempFile(t, []byte(text)), valueSpec, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, rejected, err := r.next(); err != nil || rejected == nil || rejected.Line != 2 {
		t.Fatal(rejected, err)
	}
	if used := m.side.Used(); used < 1<<20 || used > 4<<20 {
		t.Errorf("%d bytes are read ahead", used)
	}
	before := heapInUse()
	if before > 64<<20 {
		t.Errorf("a read-ahead of 1 MiB takes %d MB", before>>20)
	}
	if out, rejected, err := r.next(); err != nil || rejected != nil || out.number != 2 {
		t.Fatal(out, rejected, err)
	}
	if _, _, err := r.next(); err == nil {
		t.Fatal("there is a third row")
	}
	if used := m.side.Used(); used != 0 {
		t.Errorf("%d bytes are still taken", used)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestPageBomb unpacks Parquet pages that are larger than their header says: they end with an error and take no more than the page.
func TestPageBomb(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	large := make([]byte, 64<<20)
	for name, codec := range map[string]struct {
		of     compress.Compression
		packed []byte
	}{"zstd": {compress.Codecs.Zstd, enc.EncodeAll(large, nil)}, "snappy": {compress.Codecs.Snappy, snappy.Encode(nil, large)}} {
		c, err := compress.GetCodec(codec.of)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := compress.Decode(c, make([]byte, 1<<20), codec.packed); err == nil {
			t.Errorf("%s: 64 MiB fit into 1", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d MB were allocated", name, n>>20)
		}
		got, err := compress.Decode(c, make([]byte, len(large)), codec.packed)
		if err != nil || !bytes.Equal(got, large) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
