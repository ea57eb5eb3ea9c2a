package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// TestWatchSwarm compares recordings of a swarm with the answers to single questions about another
// one that has the same observations and steps.
func TestWatchSwarm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := served(t, dir)
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		return expect(t, want, append(append([]string{"swarm"}, args...), "--nats", url)...)
	}
	rows := write(t, filepath.Join(dir, "rows.csv"), "agent,current\n0,0.4\n3,1.2\n")
	for _, name := range []string{"one", "two", "three"} {
		spec := write(t, filepath.Join(dir, name+".yaml"), "name: "+name+"\naddressed: agent\nagents: 8\n"+
			"agents_per_group: 4\ncell: {kind: leaky}\nvote: {candidates: [quiet, spike]}\nfeatures: [current]\n")
		run(0, "create", "-f", spec)
		run(0, "observe", name, "--input", rows)
	}
	// The answers to single questions: the frames of --ticks 6 --every 2.
	var want strings.Builder
	for tick := 0; tick <= 6; tick += 2 {
		if tick > 0 {
			run(0, "tick", "two", "--count", "2")
		}
		answers, _ := run(0, "query", "two", "--agents", "0-3", "-o", "jsonl")
		for line := range strings.Lines(answers) {
			var a struct {
				Agent int
				Vote  string
				State []float32
			}
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("json.Unmarshal: %v", err)
			}
			vote, known := map[string]string{"quiet": "0", "spike": "1"}[a.Vote]
			if !known {
				vote = "(null)"
			}
			fmt.Fprintln(&want, tick, a.Agent, vote, a.State)
		}
	}
	file := filepath.Join(dir, "one.arrow")
	_, stderr := run(0, "watch", "one", "-o", file, "--agents", "0-3", "--ticks", "6", "--every", "2")
	if !strings.Contains(stderr, "one.arrow: 4 frames") {
		t.Errorf("the command prints %q, want 4 frames", stderr)
	}
	if got := frameRows(t, file); got != want.String() {
		t.Errorf("the recording has\n%s\nwant\n%s", got, want.String())
	}
	// The same as NumPy, one variable of it.
	file = filepath.Join(dir, "three.npy")
	run(0, "watch", "three", "-o", file, "--agents", "0-3", "--variables", "state", "--ticks", "6", "--every", "2")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	a, err := numpy.Read(bytes.NewReader(data), 1<<20)
	if err != nil || a.Type+fmt.Sprint(a.Shape) != "<f4[4 4 2]" {
		t.Fatalf("numpy.Read: %v, %v of shape %v, want <f4 of 4 frames of 4 agents of 2 numbers", err, a.Type, a.Shape)
	}
	at := 0
	for line := range strings.Lines(want.String()) {
		_, state, _ := strings.Cut(line, "[")
		got := []float32{
			math.Float32frombits(binary.LittleEndian.Uint32(a.Data[at:])),
			math.Float32frombits(binary.LittleEndian.Uint32(a.Data[at+4:])),
		}
		if fmt.Sprintln(got) != "["+state {
			t.Errorf("state %d is %v, want [%s", at/8, got, state)
		}
		at += 8
	}
	// A mean by group, and what others do meanwhile: the time of the first frame is before the time
	// of the last.
	run(0, "watch", "two", "-o", filepath.Join(dir, "mean.arrow"), "--compute",
		"m = mean(potential) by group; n = count(true) by group", "--for", "200ms", "--interval", "20ms")
	frames := strings.Split(strings.TrimSpace(frameRows(t, filepath.Join(dir, "mean.arrow"))), "\n")
	if len(frames) < 4 || !strings.HasSuffix(frames[0], " 4") || frames[0] >= frames[len(frames)-1] {
		t.Errorf("the recording of a computation has\n%s\nwant two rows a frame, of 4 agents each, in order of time",
			strings.Join(frames, "\n"))
	}
	for _, bad := range [][2]string{
		{"--agents 0 --variables trace --ticks 1", "--variables trace: there are [vote state]"},
		{"--agents 0 --variables vote,vote --ticks 1", "vote is named twice"},
		{"--agents 8 --ticks 1", "agent 8 of 8"},
		{"--compute mean(nothing) --ticks 1", "nothing"},
	} {
		args := append([]string{"watch", "one", "-o", filepath.Join(dir, "bad.arrow")}, strings.Fields(bad[0])...)
		if _, stderr := run(command.ExitUsage, args...); !strings.Contains(stderr, bad[1]) {
			t.Errorf("watch %s: %s, want %q", bad[0], stderr, bad[1])
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bad.arrow")); err == nil {
		t.Error("a recording that failed has left a file")
	}
}

// frameRows returns the rows of a recording as text.
func frameRows(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	r, err := ipc.NewFileReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("ipc.NewFileReader: %v", err)
	}
	defer r.Close()
	var text strings.Builder
	for b := range r.NumRecords() {
		batch, err := r.RecordBatch(b)
		if err != nil {
			t.Fatalf("batch %d: %v", b, err)
		}
		for i := range int(batch.NumRows()) {
			var row []any
			for _, c := range batch.Columns() {
				if l, ok := c.(*array.FixedSizeList); ok {
					from, to := l.ValueOffsets(i)
					row = append(row, l.ListValues().(*array.Float32).Float32Values()[from:to])
					continue
				}
				row = append(row, c.ValueStr(i))
			}
			fmt.Fprintln(&text, row...)
		}
	}
	return text.String()
}
