package serveprocess

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cmd/internal/run"
)

// TestMeter: rates are over the time between two reads, from files as Linux has them.
func TestMeter(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running := func(busy, idle, processes string) {
		write("stat", "cpu "+busy+" 0 0 "+idle+" 0 0 0 0 0 0\nprocs_running "+processes+"\nprocs_blocked 0\n")
	}
	machine := func(busy, idle, ticks, received string) {
		running(busy, idle, "4")
		write("meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\n")
		write("net/dev", "Inter-|   Receive                     |  Transmit\n"+
			" face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls "+
			"carrier compressed\n    lo: "+received+" 0 0 0 0 0 0 0 "+received+" 0 0 0 0 0 0 0\n"+
			"  eth0: "+received+" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
		write("diskstats", "   8       0 sda 1 2 3 4 5 6 7 8 9 "+ticks+" 11\n")
	}
	machine("100", "1000", "5000", "0")
	m, err := newMeter(dir)
	if err != nil {
		t.Fatal(err)
	}
	machine("175", "1025", "6000", "2097152")
	for _, processes := range []string{"1", "4", "4", "7"} {
		running("175", "1025", processes)
		if err := m.sample(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.read(m.before.at.Add(2 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"cpu_percent": 75, "runnable_processes": 3, "memory_percent": 75, "disk_percent": 50, "network_mib_s": 2,
	} {
		if v := got[name]; v < want-1e-6 || v > want+1e-6 {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	means := newMeans(1)
	rows := bytes.Split(bytes.TrimSpace(means.lines(got, time.Unix(1, 0))), []byte("\n"))
	for _, line := range rows {
		var row struct {
			Time   time.Time
			Metric string
			Value  float64
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if v := got[row.Metric]; math.Abs(row.Value-v) > metrics[row.Metric].floor+0.01 {
			t.Errorf("the first row of %s is %v, want %v within %v", row.Metric, row.Value, v,
				metrics[row.Metric].floor)
		}
	}
	if len(rows) != len(metrics) {
		t.Errorf("%d rows, want %d", len(rows), len(metrics))
	}
	means.lines(map[string]float64{"cpu_percent": 100}, time.Unix(2, 0))
	if v := means.of["cpu_percent"]; v < 72 || v > 84 {
		t.Errorf("the mean after a jump from 75 to 100 is %v", v)
	}
	if again, err := m.read(m.before.at.Add(time.Second)); err != nil || again["runnable_processes"] != 0 {
		t.Errorf("a read without samples: %v, %v", again, err)
	}
}

// TestThisMachine: the metrics of the machine of the test can be read.
func TestThisMachine(t *testing.T) {
	m, err := newMeter("/proc")
	if runtime.GOOS != "linux" {
		if err == nil {
			t.Error("a machine without /proc has metrics")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.read(time.Now().Add(time.Second))
	if err != nil || got["memory_percent"] <= 0 || got["cpu_percent"] < 0 || got["cpu_percent"] > 100 {
		t.Errorf("this machine has %v, %v", got, err)
	}
}

// TestMachineSeries: on three hours of a machine like the recorded one, each load is found within 30 s, with
// its metric, and an hour has at most one other incident. The recording has the 185 seconds below a quarter of
// the processors out of four minutes, which return in pieces of 40 s; the parameters of the detector were chosen
// on it. The loads are made: what a burner for each processor, eight times as many, a transfer by
// loopback, a writer of a disk and a growing process added to it.
func TestMachineSeries(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "machine.csv"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"cpu_percent", "runnable_processes", "memory_percent", "disk_percent", "network_mib_s"}
	table, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || !slices.Equal(table[0], names) {
		t.Fatalf("the recording: %v, %v", table[:min(1, len(table))], err)
	}
	const piece, lasts, every, hours = 40, 40, 600, 3
	loads := []struct {
		metrics []string
		add     [5]float64
	}{
		{names[:2], [5]float64{100, 2.5, 0, 0, 0}},
		{names[4:], [5]float64{45, 0.5, 0, 0, 85}},
		{names[3:4], [5]float64{20, 0.5, 0, 55, 0}},
		{names[2:3], [5]float64{5, 0, 12, 0, 0}},
		{names[:2], [5]float64{100, 16.5, 0, 0, 0}},
	}
	draw := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a test
	began, means, rows, from := time.Unix(1_800_000_000, 0), newMeans(7), []byte{}, 0
	for n := range hours * 3600 {
		if n%piece == 0 {
			from = draw.IntN(len(table) - 1)
		}
		values, into := map[string]float64{}, n%every
		for i, name := range names {
			v, err := strconv.ParseFloat(table[1+(from+n%piece)%(len(table)-1)][i], 64)
			if err != nil {
				t.Fatal(err)
			}
			if n > every && into < lasts {
				add := loads[(n/every-1)%len(loads)].add[i] * (0.9 + 0.2*draw.Float64())
				if name == "memory_percent" {
					add = min(add, add*float64(into)/5)
				}
				v += add
			}
			values[name] = v
		}
		values["cpu_percent"] = min(values["cpu_percent"], 100)
		rows = append(rows, means.lines(values, began.Add(time.Duration(n)*time.Second))...)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string][]byte{"swarm.yaml": []byte(machineSpec), "rows.ndjson": rows} {
		if err := os.WriteFile(file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := run.Command()
	cmd.SetArgs([]string{
		"-f", file("swarm.yaml"), "--input", file("rows.ndjson"), "--output", file("out.ndjson"), "--anomalies",
		file("found.ndjson"), "--progress", "none",
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file("found.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	found, others := map[int]string{}, []string{}
	for line := range bytes.Lines(text) {
		var in struct {
			Metric string
			Begin  time.Time
		}
		if err := json.Unmarshal(line, &in); err != nil {
			t.Fatal(err)
		}
		n := int(in.Begin.Sub(began).Seconds())
		load, late := n/every, n%every
		switch {
		case load == 0 || late > lasts+10:
			others = append(others, fmt.Sprintf("%s at %d", in.Metric, n))
		case late <= 30 && found[load] == "" && slices.Contains(loads[(load-1)%len(loads)].metrics, in.Metric):
			found[load] = fmt.Sprintf("%s after %d s", in.Metric, late)
		}
	}
	t.Logf("found %v, others %v", found, others)
	for load := 1; load < hours*3600/every; load++ {
		if found[load] == "" {
			t.Errorf("load %d (%v) is not found", load, loads[(load-1)%len(loads)].metrics)
		}
	}
	if len(others) > hours {
		t.Errorf("other incidents: %v", others)
	}
}
