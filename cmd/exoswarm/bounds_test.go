package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/gzip"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// peak returns the most memory that a process has had resident since resetPeak, in bytes.
func (p *process) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmHWM:\n%s", text)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatalf("strconv.ParseInt: %v", err)
	}
	return kib << 10
}

func (p *process) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
}

// packedArrow returns a packed Arrow file of three rows with a text column of a number of bytes.
func packedArrow(t *testing.T, size int) []byte {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "timestamp", Type: arrow.PrimitiveTypes.Int64},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
		{Name: "note", Type: arrow.BinaryTypes.String},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i := range 3 {
		b.Field(0).(*array.Int64Builder).Append(int64(1_700_000_000 + i))
		b.Field(1).(*array.Float64Builder).Append(float64(i))
		b.Field(2).(*array.StringBuilder).BinaryBuilder.Append(make([]byte, size/3))
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s), ipc.WithZstd())
	if err := w.Write(rec); err != nil {
		t.Fatalf("w.Write: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("w.Close: %v", err)
	}
	return out.Bytes()
}

// windowed returns a zstd frame of one raw block that asks for a window of 1 KiB shifted by log.
func windowed(log byte, text string) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, log << 3}
	head := uint32(len(text))<<3 | 1
	return append(append(b, byte(head), byte(head>>8), byte(head>>16)), text...)
}

// bounded is a cluster whose CPU agent may take 1 GiB.
type bounded struct {
	processes
	dir  string // what jobs know as "d"
	spec json.RawMessage
}

// boundedLimit is what the CPU agent may take, in bytes.
const boundedLimit = 1 << 30

func startBounded(t *testing.T, args ...string) *bounded {
	t.Helper()
	c := &bounded{
		processes: processes{bin: binaries(t), natsDir: t.TempDir()}, dir: t.TempDir(),
		spec: specJSON(t, "name: test\nagents_per_group: 16\n"),
	}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--fast", "--data-dir", c.natsDir)
	c.startGPU(t)
	c.cpu, _ = startProcess(t, "cpuagent is ready", filepath.Join(c.bin, "cpuagent"),
		append(args, "--nats", c.url, "--root", "d="+c.dir, "--data-dir", t.TempDir(), "--memory", "1GiB",
			"--max-unpacked",
			strconv.Itoa(300<<20))...)
	return c
}

// stream has a job read sources. The agent stays within its memory. said is what the command
// prints, err is its error.
func (c *bounded) stream(t *testing.T, id string, list []source.Series) (said []byte, err error) {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	write(t, filepath.Join(c.dir, id+".manifest"), string(text))
	job, err := json.Marshal(cpuagents.StreamSpec{
		Name: "test", Spec: c.spec, Candidates: []string{"normal", "elevated", "anomalous"},
		Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
		Manifest: "file:d/" + id + ".manifest", Output: "file:d/" + id + ".out.ndjson",
		Rejects: "file:d/" + id + ".rejects", Summary: "file:d/" + id + ".summary",
	})
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	c.cpu.resetPeak(t)
	began := time.Now()
	cmd := osexec.CommandContext(t.Context(), filepath.Join(c.bin, "exoswarm"), "submit", "--nats", c.url, "--kind",
		"stream", "--id", id, "--max-attempts", "1",
		"--spec", "@"+write(t, filepath.Join(c.dir, id+".json"), string(job)), "--wait")
	said, err = cmd.CombinedOutput()
	peak := c.cpu.peak(t)
	t.Logf("%d sources: at most %d MB, %v", len(list), peak>>20, time.Since(began).Round(100*time.Millisecond))
	if peak > boundedLimit {
		t.Errorf("the agent has taken %d MB", peak>>20)
	}
	return said, err
}

// TestInputBounds has a CPU agent of 1 GiB do jobs with hostile inputs. It never takes more, and
// each job ends well or with a sentence.
func TestInputBounds(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	c := startBounded(t)
	dir := c.dir
	rows := "timestamp,value\n1700000000,1\n1700000001,2\n1700000002,3\n"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 400 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatalf("z.Write: %v", err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatalf("z.Close: %v", err)
	}
	// A Parquet footer that is a list of 15 million empty structures.
	footer := append([]byte{0x19, 0xfc}, binary.AppendUvarint(nil, 15_000_000)...)
	footer = append(footer, make([]byte, 15_000_001)...)
	parquet := append([]byte("PAR1"), footer...)
	parquet = append(binary.LittleEndian.AppendUint32(parquet, uint32(len(footer))), "PAR1"...)
	for name, in := range map[string]struct {
		ext    string
		data   []byte
		copies int
		want   string // of the error; empty: the job is done
		each   int    // rows that are decided of each file
	}{
		"arrow of 180 MB": {"arrow", packedArrow(t, 180<<20), 48, "", 3},
		"arrow of 250 MB": {
			"arrow", packedArrow(t, 250<<20), 256,
			`reading it takes .*iB of memory at once, and this agent has .*--memory`, 0,
		},
		"zst windows of 128 MB": {"csv.zst", windowed(17, rows), 256, "", 3},
		"zst windows of 2 MB":   {"csv.zst", windowed(11, rows), 256, "", 3},
		"zst windows of 1 GB":   {"csv.zst", windowed(20, rows), 256, `asks for a window of`, 0},
		"gz of 400 MB":          {"csv.gz", bomb.Bytes(), 4, `--max-unpacked`, 0},
		"parquet footer":        {"parquet", parquet, 8, `reading it takes .*iB of memory`, 0},
		"lines of 5 MB":         {"csv", []byte(rows + strings.Repeat("x", 5<<20) + "\n1700000003,4\n"), 64, "", 4},
		"JSON lines of 5 MB": {"ndjson", []byte(`{"timestamp":1700000000,"value":1,"note":"` +
			strings.Repeat("x", 5<<20) + "\"}\n" + `{"timestamp":1700000001,"value":1}` + "\n"), 64, "", 1},
		"records of 900 KB": {"csv", []byte("timestamp,value,note\n" +
			strings.Repeat("1700000000,1,"+strings.Repeat("x", 900<<10)+"\n", 8)), 64, "", 8},
		"quotes that stay open": {"csv", []byte(rows + "\"" + strings.Repeat("\n", 1<<20) + "\n"), 256, "", 3},
		"10,000 files":          {"csv", []byte(rows), 10_000, "", 3},
		"a million series": {
			"csv", []byte(rows), 1_000_000,
			`its series take .* of memory and more, and this agent has`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.Map(func(r rune) rune {
				if r == ' ' || r == ',' {
					return '-'
				}
				return r
			}, name)
			if err := os.WriteFile(filepath.Join(dir, id+"."+in.ext), in.data, 0o644); err != nil {
				t.Fatalf("os.WriteFile: %v", err)
			}
			var list []source.Series
			for i := range in.copies {
				list = append(list, source.Series{Name: fmt.Sprintf("s%07d", i), URI: "file:d/" + id + "." + in.ext})
			}
			said, err := c.stream(t, id, list)
			if in.want != "" {
				if err == nil || !regexp.MustCompile(in.want).Match(said) {
					t.Fatalf("%v: %.600s; want %s", err, said, in.want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %.600s", err, said)
			}
			out, err := os.ReadFile(filepath.Join(dir, id+".out.ndjson"))
			if err != nil {
				t.Fatalf("os.ReadFile: %v", err)
			}
			if n := bytes.Count(out, []byte("\n")); n != in.copies*in.each {
				t.Errorf("%d decisions, want %d", n, in.copies*in.each)
			}
		})
	}
}
