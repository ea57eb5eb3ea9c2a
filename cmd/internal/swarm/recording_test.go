package swarm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// frames are two agents over three frames.
func frames() (all []recordFrame) {
	for i := range uint64(3) {
		all = append(all, recordFrame{
			Tick: 10 * i, Time: time.UnixMicro(int64(1000 + i)).UTC(), IDs: []uint32{4, 9},
			Columns: []recordColumn{
				{Name: "vote", Values: []uint8{uint8(i), 255}, Width: 1, Valid: []bool{true, false}},
				{Name: "state", Values: []float32{float32(i), 0.5, -1, float32(math.Inf(1))}, Width: 2},
				{Name: "n", Values: []uint64{i, math.MaxUint64}, Width: 1},
			},
		})
	}
	return all
}

// write records frames, and returns the file.
func recorded(t *testing.T, o recordingOptions, all []recordFrame) []byte {
	t.Helper()
	var out bytes.Buffer
	r, err := newRecorder(&out, o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	for _, f := range all {
		if err := r.Add(f); err != nil {
			t.Fatalf("Add: %v", err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return out.Bytes()
}

// rowsOf returns the rows of an Arrow file as text, with the names of the columns first.
func rowsOf(t *testing.T, file []byte) string {
	t.Helper()
	r, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("ipc.NewFileReader: %v", err)
	}
	defer r.Close()
	var text strings.Builder
	for _, f := range r.Schema().Fields() {
		fmt.Fprint(&text, f.Name, " ")
	}
	for b := range r.NumRecords() {
		batch, err := r.RecordBatch(b)
		if err != nil {
			t.Fatalf("batch %d: %v", b, err)
		}
		for i := range int(batch.NumRows()) {
			text.WriteByte('\n')
			for _, c := range batch.Columns() {
				if l, ok := c.(*array.FixedSizeList); ok {
					from, to := l.ValueOffsets(i)
					v := l.ListValues().(*array.Float32)
					fmt.Fprint(&text, v.Float32Values()[from:to], " ")
					continue
				}
				fmt.Fprint(&text, c.ValueStr(i), " ")
			}
		}
	}
	return text.String()
}

func TestArrow(t *testing.T) {
	want := `tick agent vote state n 
0 4 0 [0 0.5] 0 
0 9 (null) [-1 +Inf] 18446744073709551615 
10 4 1 [1 0.5] 1 
10 9 (null) [-1 +Inf] 18446744073709551615 
20 4 2 [2 0.5] 2 
20 9 (null) [-1 +Inf] 18446744073709551615 `
	if got := rowsOf(t, recorded(t, recordingOptions{Format: arrowFormat, IDName: "agent"}, frames())); got != want {
		t.Errorf("by tick the file has\n%s\nwant\n%s", got, want)
	}
	got := rowsOf(t, recorded(t, recordingOptions{Format: arrowFormat, Timed: true}, frames()[1:2]))
	want = "time vote state n \n1970-01-01T00:00:00.001001Z 1 [1 0.5] 1 \n" +
		"1970-01-01T00:00:00.001001Z (null) [-1 +Inf] 18446744073709551615 "
	if got = strings.ReplaceAll(got, "1970-01-01 00:00:00.001001", "1970-01-01T00:00:00.001001Z"); got != want {
		t.Errorf("by time the file has\n%s\nwant\n%s", got, want)
	}
}

// TestNpy: a column of many values a row has three dimensions, and a column of one has two.
func TestNpy(t *testing.T) {
	for column, want := range []struct {
		kind  string
		shape string
	}{{"<u1", "[3 2]"}, {"<f4", "[3 2 2]"}, {"<u8", "[3 2]"}} {
		all := frames()
		var data []byte
		for i := range all {
			all[i].Columns = all[i].Columns[column : column+1]
			data = append(data, frameBytes(all[i].Columns[0].Values)...)
		}
		a, err := numpy.Read(bytes.NewReader(recorded(t, recordingOptions{Format: npyFormat, Frames: 3}, all)), 1<<20)
		if err != nil {
			t.Fatalf("numpy.Read: %v", err)
		}
		if a.Type != want.kind || fmt.Sprint(a.Shape) != want.shape || !bytes.Equal(a.Data, data) {
			t.Errorf("column %d is %s %v, data %v; want %s %s, data %v", column, a.Type, a.Shape, a.Data, want.kind,
				want.shape, data)
		}
	}
}

// TestFrames: a frame that differs from the first one is refused, and nothing of it is written.
func TestFrames(t *testing.T) {
	ok := func() recordFrame { return frames()[0] }
	for name, change := range map[string]func(f *recordFrame){
		"no column": func(f *recordFrame) { f.Columns = nil },
		"a name":    func(f *recordFrame) { f.Columns[0].Name = "x" },
		"a type":    func(f *recordFrame) { f.Columns[2].Values = []int64{1, 2} },
		"a width": func(f *recordFrame) {
			f.Columns[2] = recordColumn{
				Name: "n", Values: []uint64{1, 2, 3, 4},
				Width: 2,
			}
		},
		"fewer columns": func(f *recordFrame) { f.Columns = f.Columns[:2] },
		"more columns": func(f *recordFrame) {
			f.Columns = append(f.Columns, recordColumn{Name: "y", Values: []uint8{1, 2}, Width: 1})
		},
		"rows of one": func(f *recordFrame) { f.Columns[2].Values = []uint64{1} },
		"rows of all": func(f *recordFrame) {
			f.IDs = f.IDs[:1]
			f.Columns = []recordColumn{
				{Name: "vote", Values: []uint8{1}, Width: 1},
				{Name: "state", Values: []float32{1, 2}, Width: 2},
				{Name: "n", Values: []uint64{1}, Width: 1},
			}
		},
		"ids":      func(f *recordFrame) { f.IDs = nil },
		"marks":    func(f *recordFrame) { f.Columns[0].Valid = []bool{true} },
		"a marked": func(f *recordFrame) { f.Columns[1].Valid = []bool{true, true} },
		"texts":    func(f *recordFrame) { f.Columns[0].Values = []string{"a", "b"} },
		"a half":   func(f *recordFrame) { f.Columns[1].Values = []float32{1, 2, 3} },
		"no width": func(f *recordFrame) { f.Columns[1].Width = 0 },
	} {
		var out bytes.Buffer
		r, err := newRecorder(&out, recordingOptions{Format: arrowFormat, IDName: "agent"})
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		if err := r.Add(ok()); err != nil {
			t.Fatalf("Add: %v", err)
		}
		bad := ok()
		change(&bad)
		if err := r.Add(bad); !errors.Is(err, errFrame) {
			t.Errorf("%s: Add returns %v, want %v", name, err, errFrame)
		}
		if r.Frames() != 1 {
			t.Errorf("%s: %d frames after one that is refused, want 1", name, r.Frames())
		}
	}
}

func TestFormats(t *testing.T) {
	var out bytes.Buffer
	if _, err := newRecorder(&out, recordingOptions{Format: "csv"}); !errors.Is(err, errRecordingFormat) {
		t.Errorf("New with csv returns %v, want %v", err, errRecordingFormat)
	}
	if _, err := newRecorder(&out, recordingOptions{Format: npyFormat}); !errors.Is(err, errRecordingFormat) {
		t.Errorf("New of an unknown number of frames returns %v, want %v", err, errRecordingFormat)
	}
	r, err := newRecorder(&out, recordingOptions{Format: npyFormat, Frames: 2})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	err = r.Add(frames()[0])
	if !errors.Is(err, errRecordingFormat) || !strings.Contains(err.Error(), "[vote state n]") {
		t.Errorf("three columns of .npy: %v, want an error that names them", err)
	}
	one := frames()[0]
	one.Columns = one.Columns[:1]
	if err := r.Add(one); err != nil {
		t.Fatalf("Add: %v", err)
	}
	if err := r.Close(); !errors.Is(err, errFrame) {
		t.Errorf("Close with a frame too few returns %v, want %v", err, errFrame)
	}
}

// TestBatches compares files of random frames, which take several batches, with their rows.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const most = arrowBatchRows
		rows := rapid.SampledFrom([]int{1, 3, most / 2, most - 1, most}).Draw(rt, "rows")
		n := rapid.IntRange(1, 4).Draw(rt, "frames")
		var all []recordFrame
		var want []uint32
		for i := range n {
			f := recordFrame{Tick: uint64(i), Columns: []recordColumn{{Name: "v", Width: 1, Valid: make([]bool, rows)}}}
			values := make([]uint32, rows)
			for j := range values {
				values[j] = uint32(i*rows + j)
				f.Columns[0].Valid[j] = j%3 != i%3
			}
			f.Columns[0].Values = values
			want = append(want, values...)
			all = append(all, f)
		}
		r, err := ipc.NewFileReader(bytes.NewReader(recorded(t, recordingOptions{Format: arrowFormat}, all)))
		if err != nil {
			rt.Fatalf("ipc.NewFileReader: %v", err)
		}
		defer r.Close()
		at := 0
		for b := range r.NumRecords() {
			batch, err := r.RecordBatch(b)
			if err != nil {
				rt.Fatalf("batch %d: %v", b, err)
			}
			v := batch.Column(1).(*array.Uint32)
			for i, got := range v.Uint32Values() {
				frame, row := at/rows, at%rows
				if got != want[at] || v.IsValid(i) != (row%3 != frame%3) ||
					batch.Column(0).(*array.Uint64).Value(i) != uint64(frame) {
					rt.Fatalf("row %d is %s at tick %s, want %d of frame %d", at, v.ValueStr(i),
						batch.Column(0).ValueStr(i), want[at], frame)
				}
				at++
			}
		}
		if at != len(want) {
			rt.Fatalf("the file has %d rows, want %d", at, len(want))
		}
	})
}
