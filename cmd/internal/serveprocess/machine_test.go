package serveprocess

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
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
	machine := func(busy, idle, ticks, received string) {
		write("stat", "cpu "+busy+" 0 0 "+idle+" 0 0 0 0 0 0\nprocs_running 4\nprocs_blocked 0\n")
		write("meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\n")
		write("net/dev", "Inter-|   Receive                     |  Transmit\n"+
			" face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls "+
			"carrier compressed\n    lo: 99999999 0 0 0 0 0 0 0 99999999 0 0 0 0 0 0 0\n"+
			"  eth0: "+received+" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
		write("diskstats", "   8       0 sda 1 2 3 4 5 6 7 8 9 "+ticks+" 11\n")
	}
	machine("100", "1000", "5000", "0")
	m, err := newMeter(dir)
	if err != nil {
		t.Fatal(err)
	}
	machine("175", "1025", "6000", "4194304")
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
	means := map[string]float64{}
	rows := bytes.Split(bytes.TrimSpace(lines(got, means, time.Unix(1, 0))), []byte("\n"))
	for _, line := range rows {
		var row struct {
			Time   time.Time
			Metric string
			Value  float64
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if v := got[row.Metric]; row.Value < v-floors[row.Metric]-0.01 || row.Value > v+floors[row.Metric]+0.01 {
			t.Errorf("the first row of %s is %v, want %v within %v", row.Metric, row.Value, v, floors[row.Metric])
		}
	}
	if len(rows) != len(floors) {
		t.Errorf("%d rows, want %d", len(rows), len(floors))
	}
	lines(map[string]float64{"cpu_percent": 100}, means, time.Unix(2, 0))
	if v := means["cpu_percent"]; v < 76 || v > 82 {
		t.Errorf("the mean after a jump from 75 to 100 is %v", v)
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
