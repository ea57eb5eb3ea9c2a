package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/tools/simulate/cluster"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// The bounds of a prediction.
const (
	boundRate = 0.15
	bound99   = 0.25
)

type prediction struct {
	shards, rows int
	offered      float64 // entries a second; 0: saturating
	run, model   figures
	report       *cluster.Report
}

type figures struct{ rate, p50, p99 float64 } // entries a second, nanoseconds

func (p *prediction) off() (rate, p50, p99 float64) {
	return p.model.rate/p.run.rate - 1, p.model.p50/p.run.p50 - 1, p.model.p99/p.run.p99 - 1
}

func (p *prediction) within() (rate, p99 bool) {
	r, _, l := p.off()
	return math.Abs(r) <= boundRate, math.Abs(l) <= bound99
}

// predict simulates each run of a file with stages of another one.
func predict(stages, runs *times.File) (all []*prediction, err error) {
	var cores int
	if _, err := fmt.Sscanf(runs.Header["machine"], "%d cores", &cores); err != nil {
		return nil, fmt.Errorf("%w: the header machine is %q: want a number of cores first", times.ErrInvalid,
			runs.Header["machine"])
	}
	for i := range runs.Series {
		s := &runs.Series[i]
		if s.Name != "run" {
			continue
		}
		c, err := configOf(s, cores)
		if err != nil {
			return nil, err
		}
		r, err := cluster.Simulate(c, []*times.File{stages})
		if err != nil {
			return nil, err
		}
		all = append(all, &prediction{
			shards: c.Shards, rows: c.Load.Rows, offered: s.Keys["offered"],
			run:    figures{s.Keys["answered"], s.Times.Quantile(0.5), s.Times.Quantile(0.99)},
			model:  figures{r.Entries, r.Latency.Quantile(0.5), r.Latency.Quantile(0.99)},
			report: r,
		})
	}
	return all, nil
}

// configOf returns the configuration of a measured run: all parts on one host.
func configOf(s *times.Series, cores int) (*cluster.Config, error) {
	load := map[string]any{"rows": int(s.Keys["rows"])}
	if s.Keys["offered"] > 0 {
		load["rate"] = s.Keys["offered"]
	} else {
		load["window"] = int(s.Keys["window"])
	}
	text, err := yaml.Marshal(map[string]any{
		"name": "run", "times": []string{"stages.times"}, "seed": 1, "shards": int(s.Keys["shards"]), "load": load,
		"length":  fmt.Sprint(time.Duration(s.Keys["seconds"] * 1e9)),
		"warmup":  fmt.Sprint(time.Duration(s.Keys["warmup"] * 1e9)),
		"brokers": map[string]int{"count": 1, "cores": cores},
	})
	if err != nil {
		return nil, err
	}
	return cluster.Parse("run", text)
}

func validate(w io.Writer, stagesFile, runsFile string) error {
	stages, err := open(stagesFile)
	if err != nil {
		return err
	}
	runs, err := open(runsFile)
	if err != nil {
		return err
	}
	all, err := predict(stages, runs)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Stages and runs of %s, %s.\n\n", runs.Header["machine"], runs.Header["date"])
	fmt.Fprintln(w, "| shards | rows | load | entries/s, run | model | | p50 ms, run | model | | p99 ms, run | "+
		"model | | busiest |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	rates, tails := 0, 0
	for _, p := range all {
		rate, p50, p99 := p.off()
		okRate, okTail := p.within()
		load := "full"
		if p.offered > 0 {
			load = "half"
		}
		rates, tails = rates+btoi(okRate), tails+btoi(okTail)
		fmt.Fprintf(w, "| %d | %d | %s | %.0f | %.0f | %s | %.2f | %.2f | %+.0f %% | %.2f | %.2f | %s | %s |\n",
			p.shards, p.rows, load, p.run.rate, p.model.rate, mark(rate, okRate),
			p.run.p50/1e6, p.model.p50/1e6, 100*p50, p.run.p99/1e6,
			p.model.p99/1e6, mark(p99, okTail), busiest(p.report, 3))
	}
	fmt.Fprintf(w, "\nWithin the bounds: throughput (%.0f %%) %d of %d, p99 (%.0f %%) %d of %d.\n", 100*boundRate,
		rates, len(all), 100*bound99, tails, len(all))
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func mark(off float64, ok bool) string {
	if ok {
		return fmt.Sprintf("%+.0f %%", 100*off)
	}
	return fmt.Sprintf("**%+.0f %%**", 100*off)
}

func busiest(r *cluster.Report, n int) string {
	var all []string
	for _, u := range r.Use[:min(n, len(r.Use))] {
		all = append(all, fmt.Sprintf("%s %.0f %%", u.Name, 100*u.Share))
	}
	return strings.Join(all, ", ")
}
