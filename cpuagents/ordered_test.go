package cpuagents

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// decisionsOf makes one decision for each of these groups, read so long ago.
func decisionsOf(ago time.Duration, groups ...uint32) *batch.Decisions {
	d := &batch.Decisions{Candidates: 2}
	for i, g := range groups {
		d.Group, d.Row, d.Read = append(d.Group, g), append(d.Row, uint64(i+1)),
			append(d.Read, time.Now().Add(-ago).UnixNano())
		d.Timestamp, d.Value, d.Score = append(d.Timestamp, "1"), append(d.Value, float64(10*g)+float64(i)),
			append(d.Score, 0.5)
		d.Decision, d.Counts = append(d.Decision, uint32(i%2)), append(d.Counts, 1, 2)
		d.Leader, d.Round = append(d.Leader, 3), append(d.Round, uint64(i+1))
	}
	return d
}

func encodeDecisions(t *testing.T, d *batch.Decisions) []byte {
	t.Helper()
	data, err := d.Encode()
	if err != nil {
		t.Fatalf("d.Encode: %v, want no error", err)
	}
	return data
}

// sinkOf makes the sink of a job with three series and two candidates.
func orderedOf(t *testing.T, format rows.Format, out io.Writer) (*stream, *orderedOutput) {
	t.Helper()
	files, err := files.New(files.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	s := newStream(&Streamer{Options: Options{Files: files}}, "ordered", nil)
	s.series, s.counts.summary = []source.Series{{Name: "a"}, {Name: "b"}, {Name: "c"}}, make([]SeriesSummary, 3)
	s.spec.Candidates, s.spec.Columns.Features, s.spec.OutputFormat = []string{"normal", "odd"}, []string{"value"},
		format
	k, err := newOrderedOutput(s, out)
	if err != nil {
		t.Fatalf("newOrderedOutput: %v, want no error", err)
	}
	t.Cleanup(k.close)
	return s, k
}

// write decodes a batch of decisions, and passes it to an output.
func write(k *orderedOutput, data []byte) (*batch.Decisions, error) {
	d, err := batch.DecodeDecisions(data)
	if err != nil {
		return nil, err
	}
	return d, k.take(d)
}

// TestOrdered: decisions of mixed series come out series after series, each in its order, whatever
// the batches, and each is counted once.
func TestOrdered(t *testing.T) {
	var out bytes.Buffer
	s, k := orderedOf(t, "csv", &out)
	for _, groups := range [][]uint32{{0, 0, 2}, {2, 1, 2, 0}, {0}} {
		if d, err := write(k, encodeDecisions(t, decisionsOf(time.Second, groups...))); err != nil ||
			d.Len() != len(groups) {
			t.Fatalf("write of %d decisions: %v, %v, want all of them", len(groups), d, err)
		}
	}
	if err := k.finish(); err != nil {
		t.Fatalf("k.finish: %v, want no error", err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n")[1:] {
		cells := strings.Split(line, ",")
		got = append(got, cells[0]+cells[1]+"="+cells[3])
	}
	if want := "a1=0 a2=1 a4=3 a1=0 b2=11 c3=22 c1=20 c3=22"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if want := []SeriesSummary{
		{Decisions: 4, Anomalies: 2},
		{Decisions: 1, Anomalies: 1},
		{Decisions: 3},
	}; !reflect.DeepEqual(s.counts.summary, want) || s.counts.state.Decisions != 8 {
		t.Errorf("%+v, %d decisions", s.counts.summary, s.counts.state.Decisions)
	}
	// What stands behind one another in the spool is one piece.
	if n := []int{len(k.pieces[0]), len(k.pieces[1]), len(k.pieces[2])}; !reflect.DeepEqual(n, []int{2, 1, 2}) {
		t.Errorf("pieces %v", n)
	}
	if p50 := k.latency.percentile(50); p50 < 900 || p50 > 60_000 {
		t.Errorf("a latency of %v ms", p50)
	}
}

// TestOrderedBounds: a batch that is not of this swarm is refused, and one at the bounds is not.
func TestOrderedBounds(t *testing.T) {
	var out bytes.Buffer
	_, k := orderedOf(t, "csv", &out)
	other := decisionsOf(0, 0)
	other.Candidates, other.Counts = 1, []uint32{1}
	group := decisionsOf(0, 0, 3)
	candidate := decisionsOf(0, 0, 1)
	candidate.Decision[1] = 2
	none := decisionsOf(0, 2, 1)
	none.Decision[0] = batch.NoDecision
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"candidates": {encodeDecisions(t, other), "decisions between 1 candidates, the spec names 2"},
		"group":      {encodeDecisions(t, group), "decision 1: group 3 and candidate 1 are not of this swarm"},
		"candidate":  {encodeDecisions(t, candidate), "decision 1: group 1 and candidate 2 are not of this swarm"},
		"nothing":    {nil, ""}, "garbage": {[]byte("garbage"), ""},
	} {
		if _, err := write(k, c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: k.write: %v, want %q in its text", name, err, c.want)
		} else if e := (*jobs.Error)(nil); c.want != "" && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid) {
			t.Errorf("%s: %v is not CodeInvalid", name, err)
		}
	}
	if _, err := write(k, encodeDecisions(t, none)); err != nil {
		t.Errorf("k.write: %v, want no error", err)
	}
}

// TestOrderedLatency: a latency below a microsecond, a clock that was set back and one of days are
// counted at the bounds.
func TestOrderedLatency(t *testing.T) {
	for ago, want := range map[time.Duration][2]float64{
		-time.Hour: {0.001, 0.001}, 100 * time.Hour: {3.5e6, 3.7e6},
		10 * time.Second: {10_000, 70_000},
	} {
		_, k := orderedOf(t, "", nil)
		if _, err := write(k, encodeDecisions(t, decisionsOf(ago, 0))); err != nil {
			t.Fatalf("k.write: %v, want no error", err)
		}
		if got := k.latency.percentile(100); got < want[0] || got > want[1] || k.latency.TotalCount() != 1 {
			t.Errorf("read %v ago: %v ms, %d values", ago, got, k.latency.TotalCount())
		}
	}
}

// TestOrderedWithoutOutput: it only counts, and makes no file.
func TestOrderedWithoutOutput(t *testing.T) {
	s, k := orderedOf(t, "", nil)
	d := decisionsOf(0, 0, 0, 1)
	d.Dropped = []uint8{batch.Applied, batch.DroppedLate, batch.Applied}
	d.Decision[1], d.Score[1] = batch.NoDecision, 0
	d.Counts[2], d.Counts[3] = 0, 0
	if _, err := write(k, encodeDecisions(t, d)); err != nil {
		t.Fatalf("k.write: %v, want no error", err)
	}
	sum, state := s.counts.summary, s.counts.state
	if sum[0].Decisions != 1 || sum[0].Late != 1 || sum[1].Decisions != 1 || state.Decisions != 2 || state.Late != 1 {
		t.Errorf("summaries %+v, state %+v, want one late decision and two in time", sum, state)
	}
	if err := k.finish(); err != nil || k.spool != nil {
		t.Errorf("finish: %v with a spool %v, want no error and no spool", err, k.spool)
	}
}

// failingWriter takes a number of bytes.
type failingWriter struct {
	left int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

// TestOrderedFails: a disk that is full, of the scratch folder or of the output, is an error in
// each format, and no row is lost without one.
func TestOrderedFails(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	for _, format := range []rows.Format{"csv", "ndjson", "arrow", "parquet", "csv.gz", "ndjson.zst", "arrow.gz"} {
		var whole bytes.Buffer
		for _, left := range []int{math.MaxInt, 0} {
			w := &failingWriter{left, full}
			_, k := orderedOf(t, format, io.MultiWriter(w, &whole))
			for range 3 {
				if _, err := write(k, encodeDecisions(t, decisionsOf(0, 0, 1, 2))); err != nil {
					t.Fatalf("k.write: %v, want no error", err)
				}
			}
			err := k.finish()
			if e := (*jobs.Error)(nil); (err == nil) != (left > 0) || err != nil &&
				(!errors.As(err, &e) || e.Code != jobs.CodeIO ||
					!strings.Contains(err.Error(), "no space left on the disk")) {
				t.Errorf("%s with %d bytes: %v", format, left, err)
			}
			if left > 0 {
				name := "timestamp"
				r, err := rows.Open("s", fixture.TempFile(t, whole.Bytes()), format,
					rows.ColumnSpec{Timestamp: name, Features: []string{"value", "row"}, AnyOrder: true},
					fixture.Plenty, nil)
				if err != nil {
					t.Fatalf("%s: rows.Open: %v, want no error", format, err)
				}
				if rows, rejects, err := inputtest.All(t, r); err != nil || len(rows) != 9 || len(rejects) != 0 {
					t.Errorf("%s: %d rows, %v, %v", format, len(rows), rejects, err)
				}
			}
		}
	}
	// The spool of decisions.
	_, k := orderedOf(t, "csv", io.Discard)
	k.w = bufio.NewWriterSize(&failingWriter{0, full}, 16)
	if _, err := write(k, encodeDecisions(t, decisionsOf(0, 0, 1, 2))); !errors.Is(err, jobs.ErrUnfit) ||
		!strings.Contains(err.Error(), "the spool of decisions") {
		t.Errorf("the spool: %v", err)
	}
	_, k = orderedOf(t, "csv", io.Discard)
	k.w = bufio.NewWriterSize(&failingWriter{0, full}, 1<<20)
	if _, err := write(k, encodeDecisions(t, decisionsOf(0, 0, 1, 2))); err != nil {
		t.Fatalf("k.write: %v, want no error", err)
	}
	if err := k.finish(); !errors.Is(err, jobs.ErrUnfit) || !strings.Contains(err.Error(), "the spool of decisions") {
		t.Errorf("the spool, at the end: %v", err)
	}
	_, k = orderedOf(t, "csv", io.Discard)
	if _, err := write(k, encodeDecisions(t, decisionsOf(0, 0))); err != nil {
		t.Fatalf("k.write: %v, want no error", err)
	}
	k.close()
	if err := k.finish(); err == nil {
		t.Error("a spool that is closed was read")
	}
	bad := newStream(&Streamer{Options: Options{Files: inputtest.Scratch(t)}}, "bad", nil)
	bad.spec.OutputFormat = "xls"
	if _, err := newOrderedOutput(bad, io.Discard); err == nil {
		t.Error("xls is a format")
	}
}
