package monitoring

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/runjob"
	"github.com/exoswarm/exoswarm/internal/telemetry/otlptest"
	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsqtest"
)

var (
	costPairs = flag.Int("cost.pairs", 1, "pairs of runs of TestScrapeCost")
	costRows  = flag.Int("cost.rows", 50_000, "rows of a run of TestScrapeCost")
	costEvery = flag.Duration("cost.every", 5*time.Second, "time between two scrapes of TestScrapeCost")
	costMost  = flag.Float64("cost.most", 0, "most percent of processor time that TestScrapeCost allows; 0: it only "+
		"reports")
)

// TestScrapeCost: what scrapes every 5 s and traces of 1 % of the jobs and entries cost, as processor time
// of the same run on two clusters, one with both and one with neither, in turn. make metrics-cost has a
// sample that tells.
func TestScrapeCost(t *testing.T) {
	testlong.Only(t)
	collector := otlptest.Start(t)
	rows := filepath.Join(t.TempDir(), "rows.csv")
	var b bytes.Buffer
	b.WriteString("timestamp,value\n")
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range *costRows {
		fmt.Fprintf(&b, "%s,%d\n", at.Add(time.Duration(i)*time.Second).Format(time.RFC3339), i%97)
	}
	spec := filepath.Join(filepath.Dir(rows), "swarm.yaml")
	for name, data := range map[string][]byte{rows: b.Bytes(), spec: []byte(costSpec)} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
	traced := func(on bool) { // of processes that start from now on, and of runs
		t.Setenv("OTEL_TRACES_EXPORTER", map[bool]string{false: "none", true: "otlp"}[on])
	}
	agents := map[*stand][]*process{}
	start := func(observed bool) *stand {
		s := &stand{t: t, dir: t.TempDir(), port: natsqtest.Port(t)}
		s.reserve("cpu", "gpu")
		s.serveNATS()
		t.Cleanup(func() { s.nats.Close() })
		traced(observed)
		agents[s] = []*process{
			s.launch("gpu", "gpuagent", "--name", "gpu", "--device", "host", "--data-dir", filepath.Join(s.dir, "gpu")),
			s.launch("cpu", "cpuagent", "--name", "cpu", "--data-dir", filepath.Join(s.dir, "cpu")),
		}
		for name, addr := range s.targets {
			s.eventually(name+" is ready", func() bool {
				_, err := get(t, "http://"+addr+"/readyz", "")
				return err == nil
			})
		}
		return s
	}
	plain, observed := start(false), start(true)
	ctx, cancel := context.WithCancel(t.Context())
	var scraping sync.WaitGroup
	defer scraping.Wait()
	defer cancel()
	on := make(chan bool)
	scraping.Go(func() {
		tick := time.NewTicker(*costEvery)
		defer tick.Stop()
		for now := false; ; {
			select {
			case now = <-on: // the first scrape of a run is at its begin
				tick.Reset(*costEvery)
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !now {
				continue
			}
			for _, addr := range observed.targets {
				if _, err := get(t, "http://"+addr+"/metrics", "application/openmetrics-text"); err != nil &&
					ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	})
	run := func(s *stand) (cpu, wall time.Duration) {
		// That of this process is of the server, of the client, and of the scrapes.
		used := func() time.Duration {
			var r syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
				t.Fatal(err)
			}
			sum := time.Duration(r.Utime.Nano() + r.Stime.Nano())
			for _, p := range agents[s] {
				sum += p.cpu(t)
			}
			return sum
		}
		before, began := used(), time.Now()
		if err := runjob.Run(t.Context(), runjob.Options{
			Command: "run", Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler), Progress: "none",
			SpecFile: spec, Inputs: []string{rows}, Output: "-", NATS: s.nats.URL(), Patience: time.Minute,
		}); err != nil {
			t.Fatal(err)
		}
		wall = time.Since(began)
		return used() - before, wall
	}
	run(plain) // files and code are warm
	run(observed)
	var ratios []float64
	for i := range *costPairs {
		var cpu, wall [2]time.Duration
		for k := range 2 {
			which := (i + k) % 2 // the first of a pair changes
			on <- which == 1
			traced(which == 1)
			cpu[which], wall[which] = run([]*stand{plain, observed}[which])
		}
		ratios = append(ratios, float64(cpu[1])/float64(cpu[0])-1)
		t.Logf(
			"pair %d: %v and %v of processor time, %v and %v in all: %+.2f %%",
			i,
			cpu[0].Round(time.Millisecond),
			cpu[1].Round(
				time.Millisecond,
			),
			wall[0].Round(time.Millisecond),
			wall[1].Round(time.Millisecond),
			100*ratios[i],
		)
	}
	slices.Sort(ratios)
	median := 100 * ratios[len(ratios)/2]
	t.Logf("the median of %d pairs of %d rows is %+.2f %% of processor time", len(ratios), *costRows, median)
	if *costMost > 0 && median > *costMost {
		t.Errorf("scrapes and traces cost %.2f %%, more than %v", median, *costMost)
	}
}

// costSpec is the swarm of a run: small groups, so that the share of everything but kernels is large.
const costSpec = `name: cost
cell: {kind: predictor}
agents_per_group: 16
timestamp: timestamp
features: [value]
vote: {candidates: [normal, suspicious, anomalous], rule: weighted}
seed: 1
`
