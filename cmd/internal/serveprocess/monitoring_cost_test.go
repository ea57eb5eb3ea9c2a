package serveprocess_test

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
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/otlptest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
)

var (
	costPairs = flag.Int("cost.pairs", 1, "pairs of runs of TestScrapeCost")
	costRows  = flag.Int("cost.rows", 50_000, "rows of a run of TestScrapeCost")
	costSame  = flag.Bool("cost.same", false, "neither cluster of TestScrapeCost is observed: what pairs differ by")
	costTimes = flag.Int("cost.times", 1, "how many times as often TestScrapeCost scrapes and traces, 1 to 100; "+
		"its figures are divided by it")
	costMost = flag.Float64("cost.most", 0, "most percent of processor time that TestScrapeCost allows; 0: it only "+
		"reports")
)

// costEvery is the time between two scrapes whose cost TestScrapeCost reports.
const costEvery = 5 * time.Second

// TestScrapeCost: what scrapes every 5 s and traces of 1 % of the jobs and entries cost, as
// processor time of the same run on two clusters, one with both and one with neither, in turn. make
// metrics-cost has a sample that tells.
//
// Two runs of one cluster differ by more than the cost, so -cost.times=20 scrapes every 250 ms,
// traces 20 %, and divides the difference by 20. The cost of a scrape and of a span does not depend
// on their rate.
func TestScrapeCost(t *testing.T) {
	testkit.OnlyLong(t)
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
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", strconv.FormatFloat(0.01*float64(*costTimes), 'g', -1, 64))
	traced := func(on bool) { // of processes that start from now on, and of runs
		t.Setenv("OTEL_TRACES_EXPORTER", map[bool]string{false: "none", true: "otlp"}[on])
	}
	ctx, cancel := context.WithCancel(t.Context())
	var scraping sync.WaitGroup
	defer scraping.Wait()
	defer cancel()
	on := make(chan *cost)
	scraping.Go(func() { scrapeEvery(ctx, t, on) })
	arm := func(observed bool) *cost {
		traced(observed)
		return startCost(t, observed)
	}
	run := func(c *cost) (cpu usage) {
		on <- c
		traced(c.observed)
		before := c.used()
		if err := runjob.Run(t.Context(), runjob.Options{
			Command: "run", Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler), Progress: "none",
			SpecFile: spec, Inputs: []string{rows}, Output: "-", NATS: c.nats.URL(), Patience: time.Minute,
		}); err != nil {
			t.Fatal(err)
		}
		return c.used().minus(before)
	}
	var ratios []float64
	for i := range *costPairs {
		// New clusters for each pair, started in turn: what one of them has by chance, its memory or
		// its files, is not taken for the cost. Runs are in the order 0 1 1 0 or 1 0 0 1.
		var arms [2]*cost
		for k := range 2 {
			which := (i + k) % 2
			arms[which] = arm(which == 1 && !*costSame)
		}
		for _, c := range arms {
			run(c) // files and code are warm
		}
		var cpu [2]usage
		for k := range 4 {
			which := (i + k/2 + k%2) % 2
			cpu[which] = cpu[which].plus(run(arms[which]))
		}
		ratios = append(ratios, (float64(cpu[1].sum())/float64(cpu[0].sum())-1)/float64(*costTimes))
		t.Logf("pair %d: %v and %v of processor time: %+.2f %%", i, cpu[0], cpu[1], 100*ratios[i])
		on <- nil
		for _, c := range arms {
			c.stop()
		}
	}
	slices.Sort(ratios)
	median := 100 * ratios[len(ratios)/2]
	t.Logf("the median of %d pairs of %d rows is %+.2f %% of processor time", len(ratios), *costRows, median)
	if *costMost > 0 && median > *costMost {
		t.Errorf("scrapes and traces cost %.2f %%, more than %v", median, *costMost)
	}
}

// scrapeEvery scrapes the last cluster of on while that is observed: at once, and *costTimes times
// in each costEvery.
func scrapeEvery(ctx context.Context, t *testing.T, on <-chan *cost) {
	every := costEvery / time.Duration(*costTimes)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for c := (*cost)(nil); ; {
		select {
		case c = <-on: // the first scrape of a run is at its start
			tick.Reset(every)
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if c == nil || !c.observed {
			continue
		}
		for _, addr := range c.targets {
			if _, err := get(t, "http://"+addr+"/metrics", "application/openmetrics-text"); err != nil &&
				ctx.Err() == nil {
				t.Error(err)
			}
		}
	}
}

// cost is a cluster of TestScrapeCost.
type cost struct {
	*stand
	observed bool
	agents   []*process
}

// startCost starts a cluster and waits until it is ready.
func startCost(t *testing.T, observed bool) *cost {
	t.Helper()
	c := &cost{stand: &stand{t: t, dir: t.TempDir(), port: jobstest.Port(t)}, observed: observed}
	c.reserve("cpu", "gpu")
	c.serveNATS()
	t.Cleanup(c.stop)
	c.agents = []*process{
		c.launch("gpu", "gpuagent", "--name", "gpu", "--device", "host", "--data-dir", filepath.Join(c.dir, "gpu")),
		c.launch("cpu", "cpuagent", "--name", "cpu", "--data-dir", filepath.Join(c.dir, "cpu")),
	}
	for name, addr := range c.targets {
		c.eventually(name+" is ready", func() bool {
			_, err := get(t, "http://"+addr+"/readyz", "")
			return err == nil
		})
	}
	return c
}

// usage is the processor time of the two agents and of this process, which has the server, the
// client, the scrapes and the collector.
type usage struct{ here, gpu, cpu time.Duration }

func (u usage) sum() time.Duration { return u.here + u.gpu + u.cpu }

func (u usage) plus(v usage) usage { return usage{u.here + v.here, u.gpu + v.gpu, u.cpu + v.cpu} }

func (u usage) minus(v usage) usage { return usage{u.here - v.here, u.gpu - v.gpu, u.cpu - v.cpu} }

func (u usage) String() string {
	const digits = 10 * time.Millisecond
	return fmt.Sprintf("%v (here %v, gpu %v, cpu %v)", u.sum().Round(digits), u.here.Round(digits), u.gpu.Round(digits),
		u.cpu.Round(digits))
}

// used returns the usage up to now.
func (c *cost) used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		c.t.Fatal(err)
	}
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), c.agents[0].cpu(c.t), c.agents[1].cpu(c.t)}
}

// stop ends the processes and the server. A second call does nothing.
func (c *cost) stop() {
	for _, p := range c.agents {
		p.end()
	}
	c.agents = nil
	c.nats.Close()
}

// costSpec is the swarm of a run: small groups, so that the share of everything but kernels is
// large.
const costSpec = `name: cost
cell: {kind: predictor}
agents_per_group: 16
timestamp: timestamp
features: [value]
vote: {candidates: [normal, suspicious, anomalous], rule: weighted}
seed: 1
`
