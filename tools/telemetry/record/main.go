//go:build linux

// Command record records telemetry of real processes: it starts three small programs, reads their
// CPU time, memory, wake-ups and written bytes from /proc once a second, provokes incidents in them
// at planned times, and writes the rows and the labels.
//
//	go run -C tools ./telemetry/record --out FOLDER --minutes 64
//
// The three programs are this command again, in a role of its own each (worker.go): a service whose
// load rises and falls every five minutes, a writer that stores a batch every thirty seconds, and a
// cache that fills and is dropped. They take about 3 % of one core. Incidents (plan.go) come after
// the first quarter of the time.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const form = "2006-01-02 15:04:05"

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		work(role, os.Stdin, os.TempDir())
		return
	}
	out := flag.String("out", "recorded", "folder for recorded.csv and incidents.json")
	minutes := flag.Float64("minutes", 64, "length; the plan of the incidents is scaled to it")
	period := flag.Duration("period", time.Second, "of the samples")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	if err := record(ctx, self, *out, time.Duration(*minutes*float64(time.Minute)), *period); err != nil {
		log.Fatal(err)
	}
}

// label is an incident as exoswarm run --labels reads it (docs/sources.md, "Labels").
type label struct {
	Series string `json:"series"`
	What   string `json:"what"`
	Begin  string `json:"begin"`
	End    string `json:"end"`
}

// columns are the recorded series: a program and what is read from it.
var columns = []struct {
	name, role string
	read       func(usage) float64 // of a counter, the growth a second; else the value
	counter    bool
}{
	{"service_cpu_percent", "service", func(u usage) float64 { return u.cpu.Seconds() * 100 }, true},
	{"service_wakeups_per_s", "service", func(u usage) float64 { return float64(u.wakeups) }, true},
	{"writer_kib_per_s", "writer", func(u usage) float64 { return float64(u.written) / 1024 }, true},
	{"cache_memory_mib", "cache", func(u usage) float64 { return float64(u.memory) / (1 << 20) }, false},
}

func record(ctx context.Context, self, out string, length, period time.Duration) (err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	programs := map[string]*program{}
	defer func() {
		for _, p := range programs {
			err = errors.Join(err, p.stop())
		}
	}()
	for _, role := range []string{"service", "writer", "cache"} {
		p, err := start(self, role)
		if err != nil {
			return fmt.Errorf("start %s: %w", role, err)
		}
		programs[role] = p
	}
	f, err := os.Create(filepath.Join(out, "recorded.csv"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	head := []string{"timestamp"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	fmt.Fprintln(w, strings.Join(head, ","))

	ticker := time.NewTicker(period)
	defer ticker.Stop()
	began, last, now := time.Now(), map[string]usage{}, map[string]usage{}
	events, labels := plan(length), []label{}
	for role, p := range programs {
		if last[role], err = p.usage(); err != nil {
			return err
		}
	}
	var rowBefore time.Duration
	for before := began; time.Since(began) < length; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		at := time.Now()
		row := at.Sub(began).Round(period)
		if row <= rowBefore { // a late tick, and then one in time
			continue
		}
		for role, p := range programs {
			if now[role], err = p.usage(); err != nil {
				return fmt.Errorf("read %s: %w", role, err)
			}
		}
		fmt.Fprint(w, stamp(began, row))
		for _, c := range columns {
			v := c.read(now[c.role])
			if c.counter {
				v = (v - c.read(last[c.role])) / at.Sub(before).Seconds()
			}
			fmt.Fprint(w, ",", strconv.FormatFloat(v, 'f', 2, 64))
		}
		fmt.Fprintln(w)
		for role := range programs {
			last[role] = now[role]
		}
		before, rowBefore = at, row
		if err := w.Flush(); err != nil {
			return err
		}
		if labels, err = provoke(events, programs, began, row, period, labels); err != nil {
			return err
		}
		if err := writeLabels(filepath.Join(out, "incidents.json"), labels); err != nil {
			return err
		}
	}
	return nil
}

func stamp(start time.Time, row time.Duration) string { return start.Add(row).UTC().Format(form) }

// provoke begins and ends the events that are due, and adds the labels of ended events. The first
// row of an incident is the first sample after its start.
func provoke(events []event, programs map[string]*program, start time.Time, row, period time.Duration,
	labels []label,
) ([]label, error) {
	for i := range events {
		e := &events[i]
		switch {
		case !e.running && !e.over && row >= e.begin:
			e.running, e.first = true, row+period
			if err := programs[e.role].do(e.on); err != nil {
				return labels, fmt.Errorf("%s: %w", e.what, err)
			}
		case e.running && row >= e.end:
			e.running, e.over = false, true
			if err := programs[e.role].do(e.off); err != nil {
				return labels, fmt.Errorf("%s: %w", e.what, err)
			}
			for _, series := range e.series {
				labels = append(labels, label{series, e.what, stamp(start, e.first), stamp(start, row)})
			}
		}
	}
	return labels, nil
}

// writeLabels writes all labels so far, so that an interrupted recording has the labels of its
// rows.
func writeLabels(path string, labels []label) error {
	text, err := json.MarshalIndent(labels, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
