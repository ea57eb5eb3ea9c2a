package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

var (
	soakFor    = flag.Duration("soak.for", 0, "how long TestSoak streams, 3 s at least; 0 skips it")
	soakGrowth = flag.Int("soak.growth", 32, "most MiB by which the memory of a process may grow in TestSoak, from "+
		"the first minute on to the end")
	soakJobs = flag.Int("soak.jobs", 2, "stream jobs at a time in TestSoak")
)

// soakSample is a moment of a soak.
type soakSample struct {
	at     time.Duration // since its beginning
	rows   uint64        // decided by then
	memory []float64     // MiB, of each process
}

// TestSoak streams at the highest rate for as long as -soak.for says, through real processes with
// every message synced, 64 agents a group on the host device: jobs read the same files again and
// again, so disks and streams hold no more than the data of two jobs. It prints rate and memory,
// and fails when the memory of a process grows. The rate is printed, not checked: it belongs to the
// machine.
func TestSoak(t *testing.T) {
	testkit.OnlyLong(t)
	if *soakFor < 3*time.Second {
		t.Skip("-soak.for says how long: make soak")
	}
	ctx, cancel := context.WithTimeout(t.Context(), *soakFor+10*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	r.gpus[0].command = []string{
		filepath.Join(r.bin, "gpuagent"), "--nats", r.url, "--data-dir", r.data, "--device",
		"host",
	}
	r.gpus[0].start(t)
	r.cpus[0].start(t)
	const files, perFile = 32, 8000
	r.inputs(files, perFile)
	spec := specJSON(t, "name: soak\nagents_per_group: 64\n")

	var decided, done atomic.Uint64
	over, failed := make(chan struct{}), make(chan error, *soakJobs)
	var streaming sync.WaitGroup
	defer streaming.Wait()
	defer cancel()
	for slot := range *soakJobs {
		streaming.Go(func() {
			for {
				out := fmt.Sprint("file:r/", slot)
				result, err := streamed(ctx, r.conn, natsconn.NewID(), cpuagents.StreamSpec{
					Name: "soak", Spec: spec, Candidates: []string{"normal", "suspicious", "anomalous"},
					Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
					Manifest: "file:r/manifest.json", Output: out + ".ndjson", Rejects: out + ".rejects",
					Summary: out + ".summary",
				}, func(n uint64) { decided.Add(n) })
				if err == nil && result.Decisions != files*perFile {
					err = fmt.Errorf("%d decisions of %d rows", result.Decisions, files*perFile)
				}
				if err != nil {
					failed <- err
					return
				}
				done.Add(1)
				select {
				case <-over:
					failed <- nil
					return
				default:
				}
			}
		})
	}
	all := []*process{r.nats[0].process, r.gpus[0].process, r.cpus[0].process}
	samples := sample(t, all, &decided, failed)
	close(over)
	for range *soakJobs {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for slot := range *soakJobs {
		if got, err := lines(filepath.Join(r.root, fmt.Sprint(slot, ".ndjson"))); err != nil ||
			len(got) != files*perFile {
			t.Errorf("%d lines of %d rows: %v", len(got), files*perFile, err)
		}
	}
	for _, p := range []*process{all[1], all[2], all[0]} {
		p.end(t, syscall.SIGTERM)
	}
	reportSoak(t, samples, all, done.Load())
}

// sample looks once a second until the soak is over.
func sample(t *testing.T, all []*process, decided *atomic.Uint64, failed <-chan error) (samples []soakSample) {
	t.Helper()
	begun := time.Now()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for time.Since(begun) < *soakFor || len(samples) < 4 { // the busiest machine has some
		select {
		case <-look.C:
		case err := <-failed:
			t.Fatal(err)
		}
		s := soakSample{at: time.Since(begun), rows: decided.Load()}
		for _, p := range all {
			s.memory = append(s.memory, anonymous(t, p.cmd.Process.Pid))
		}
		samples = append(samples, s)
	}
	return samples
}

// anonymous is the resident memory of a process in MiB without its files.
func anonymous(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, err := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
			if err != nil {
				t.Fatalf("strconv.ParseFloat: %v", err)
			}
			return kib / 1024
		}
	}
	t.Fatalf("no RssAnon of process %d", pid)
	return 0
}

// reportSoak prints what a soak measured, and fails when a process has grown. Memory saws with the
// collector, so two medians are compared: of the first and of the last fifth of the time behind the
// first minute (behind the first tenth, in a soak shorter than ten minutes).
func reportSoak(t *testing.T, samples []soakSample, all []*process, jobs uint64) {
	warm := min(time.Minute, *soakFor/10)
	from, _ := slices.BinarySearchFunc(samples, warm,
		func(s soakSample, at time.Duration) int { return cmp.Compare(s.at, at) })
	samples = samples[from:]
	window := max(len(samples)/5, 1)
	var rates []float64
	for i, s := range samples[1:] {
		rates = append(rates, float64(s.rows-samples[i].rows)/(s.at-samples[i].at).Seconds())
	}
	first, last := samples[0], samples[len(samples)-1]
	slices.Sort(rates)
	t.Logf("%v, %d jobs: %.0f observations/s in all; of the seconds median %.0f, tenth %.0f, ninetieth %.0f", *soakFor,
		jobs,
		float64(last.rows-first.rows)/(last.at-first.at).Seconds(), rates[len(rates)/2], rates[len(rates)/10],
		rates[len(rates)*9/10])
	for i, p := range all {
		var memory, at []float64
		for _, s := range samples {
			memory, at = append(memory, s.memory[i]), append(at, s.at.Minutes())
		}
		begin, end := middle(memory[:window]), middle(memory[len(memory)-window:])
		t.Logf("%-8s RssAnon %.1f MiB after %v, %.1f at the end, most %.1f, slope %+.2f MiB/min",
			filepath.Base(p.cmd.Path), begin, warm, end, slices.Max(memory), slope(at, memory))
		if end-begin > float64(*soakGrowth) {
			t.Errorf("%s has grown by %.1f MiB, more than %d", p.cmd.Path, end-begin, *soakGrowth)
		}
	}
}

// middle is the median.
func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// slope is the slope of the line with the least squares.
func slope(x, y []float64) float64 {
	var mx, my, xx, xy float64
	for i := range x {
		mx, my = mx+x[i]/float64(len(x)), my+y[i]/float64(len(x))
	}
	for i := range x {
		xx, xy = xx+(x[i]-mx)*(x[i]-mx), xy+(x[i]-mx)*(y[i]-my)
	}
	return xy / xx
}

// TestSoakReport: the figures of a soak follow from its samples.
func TestSoakReport(t *testing.T) {
	var x, up []float64
	for i := range 100 {
		x, up = append(x, float64(i)), append(up, 3+0.5*float64(i))
	}
	if got := slope(x, up); got < 0.499 || got > 0.501 {
		t.Errorf("slope %v, want 0.5", got)
	}
	if got := middle([]float64{5, 1, 9}); got != 5 {
		t.Errorf("median %v, want 5", got)
	}
	if got := anonymous(t, os.Getpid()); got <= 0 || got > 1<<20 {
		t.Errorf("this process has %v MiB", got)
	}
}
