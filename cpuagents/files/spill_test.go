package files_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// readRows reads all rows of a file through an agent with a memory.
func readRows(ctx context.Context, t *testing.T, m *access.Memory, c fixture.File, spec rows.ColumnSpec) (
	valid []rows.Row, rejects []rows.Reject, err error,
) {
	t.Helper()
	f, err := files.New(files.Options{Scratch: t.TempDir(), Unpacked: fixture.Plenty, Memory: m})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	r, err := f.Read(ctx, "s", fixture.TempFile(t, c.Data), rows.Format(c.Format), spec)
	if err != nil {
		return nil, nil, err
	}
	return inputtest.All(t, r)
}

// TestSpill reads every form of a source with others and alone: rows, rejects and errors are the
// same, and all memory is given back.
func TestSpill(t *testing.T) {
	if testing.Short() {
		t.Skip("files of all formats take half a minute to write with the race detector; one goroutine reads them")
	}
	var table []fixture.Row
	for i := range 5096 { // more rows than are read between two requests for memory
		s := fixture.Row{
			Time:   fmt.Sprintf("2026-01-02 03:%02d:%02d", i/60%60, i%60),
			Values: []fixture.Cell{float64(i), -float64(i)},
		}
		if i%7 == 0 {
			s.Values[1] = nil
		}
		table = append(table, s)
	}
	for _, w := range tabletest.Files(t, table) {
		for name, data := range map[string][]byte{"whole": w.Data, "cut": w.Data[:len(w.Data)*2/3]} {
			c := fixture.File{Name: w.Name, Format: w.Format, Data: data}
			spec := inputtest.TwoFeatures
			spec.AnyOrder = true
			want, wantRejects, wantErr := inputtest.Parse(t, rows.Format(c.Format), c.Data, spec)
			memories := []*access.Memory{access.NewMemoryParts(0, 64<<20)}
			if name == "whole" {
				memories = append(memories, access.NewMemoryParts(1<<30, 1<<30), access.NewMemoryParts(300<<10, 64<<20),
					access.NewMemoryParts(1<<20, 64<<20))
			}
			for _, m := range memories {
				got, rejects, err := readRows(t.Context(), t, m, c, spec)
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(rejects, wantRejects) ||
					fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Errorf("%s, %s, %d beside others: %d rows, %d rejects, %v; want %d, %d, %v", w.Name, name,
						m.Limit(), len(got), len(rejects), err, len(want), len(wantRejects), wantErr)
				}
				if used := m.Used(); used != 0 {
					t.Errorf("%s, %s: %d bytes are still taken", w.Name, name, used)
				}
			}
		}
	}
}

// TestSpillWaits has a source wait for the memory that another one has, until its context ends.
func TestSpillWaits(t *testing.T) {
	m := access.NewMemoryParts(0, 64<<20)
	other := m.Hold(t.Context(), "another")
	defer other.Release()
	if err := other.Grow(1); err != nil {
		t.Fatalf("other.Grow: %v, want no error", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	w := tabletest.Files(t, []fixture.Row{{Time: "2026-01-02 03:04:05", Values: []fixture.Cell{1.0, 2.0}}})
	for _, c := range w {
		_, _, err := readRows(ctx, t, m, c, inputtest.TwoFeatures)
		if strings.HasPrefix(string(rows.Format(c.Format)), "csv") ||
			strings.HasPrefix(string(rows.Format(c.Format)), "ndjson") &&
				!strings.HasSuffix(string(rows.Format(c.Format)), "zst") {
			continue // they need none
		}
		if !errors.Is(err, jobs.ErrDrain) {
			t.Errorf("%s: %v, want the cause of the context", c.Name, err)
		}
	}
}

// TestTooMuchMemory reads sources that need more than there is for one: a sentence with the
// numbers.
func TestTooMuchMemory(t *testing.T) {
	big, err := zstd.NewWriter(nil, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatalf("zstd.NewWriter: %v, want no error", err)
	}
	defer big.Close()
	var packed bytes.Buffer
	big.Reset(&packed)
	if _, err := big.Write(bytes.Repeat([]byte("timestamp,value\n"), 1<<20)); err != nil {
		t.Fatalf("big.Write: %v, want no error", err)
	}
	if err := big.Close(); err != nil {
		t.Fatalf("big.Close: %v, want no error", err)
	}
	// a list of 100,000 empty structures
	footer := binary.LittleEndian.AppendUint32(append([]byte{0x19, 0xfc, 0xa0, 0x8d, 0x06}, make([]byte, 100_001)...),
		100_006)
	parquet := append([]byte("PAR1"), append(footer, "PAR1"...)...)
	for name, c := range map[string]fixture.File{
		"window": {Format: "csv.zst", Data: packed.Bytes()},
		"footer": {Format: "parquet", Data: parquet},
	} {
		_, _, err := readRows(t.Context(), t, access.NewMemoryParts(1<<20, 4<<20), c, inputtest.OneFeature)
		if !fixture.IsInput(err) || !strings.Contains(err.Error(), "raise the agent's --memory") ||
			!strings.Contains(err.Error(), "4 MiB") {
			t.Errorf("%s: files.Read: %v, want an error of the input and %q in its text and %q in its text", name, err,
				"raise the agent's --memory", "4 MiB")
		}
	}
}
