// Command generate makes the example data: six series of a service and its machine room over two
// weeks, a row every five minutes, and incidents.json with the intervals that a person would mark
// in them. The same seed makes the same files.
//
//	go run -C tools ./telemetry/generate --out ../examples/telemetry --seed 1
//
// The incidents were chosen for being visible in a chart, or for being known to whoever runs such a
// service, before any swarm had seen the data. Some are hard for a method that knows no time of
// day: values that are usual at other hours.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"
)

const (
	step = 5 * time.Minute
	days = 14
	rows = days * 24 * int(time.Hour/step)
	form = "2006-01-02 15:04:05"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func main() {
	out := flag.String("out", "examples/telemetry", "folder for incidents.json, and for the series below data")
	seed := flag.Uint64("seed", 1, "of all random numbers")
	flag.Parse()
	if err := generate(*out, *seed); err != nil {
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

func generate(out string, seed uint64) error {
	if err := os.MkdirAll(filepath.Join(out, "data"), 0o755); err != nil {
		return err
	}
	var labels []label
	for i, s := range all {
		name := s.name + ".csv"
		// Each series has random numbers of its own: a change of one leaves the others as they are.
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		if err := write(filepath.Join(out, "data", name), s, s.values(r)); err != nil {
			return err
		}
		for _, e := range s.incidents {
			labels = append(labels, label{name, e.what, at(e.first()), at(e.last())})
		}
	}
	sort.SliceStable(labels, func(a, b int) bool { return labels[a].Begin < labels[b].Begin })
	text, err := json.MarshalIndent(labels, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "incidents.json"), append(text, '\n'), 0o644)
}

func at(row int) string { return start.Add(time.Duration(row) * step).Format(form) }

func write(path string, s series, values []float64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "timestamp,value")
	for row, v := range values {
		fmt.Fprintf(w, "%s,%s\n", at(row), strconv.FormatFloat(v, 'f', s.decimals, 64))
	}
	return w.Flush()
}

// series is one file: its usual values, and what goes wrong.
type series struct {
	name      string
	low, high float64 // bounds of a value
	decimals  int
	usual     func(r *rand.Rand) func(row int) float64
	incidents []incident
}

type incident struct {
	what   string
	day    int // 0 is the first
	clock  time.Duration
	lasts  time.Duration
	effect func(m moment) float64
}

func (e *incident) first() int { return int((time.Duration(e.day)*24*time.Hour + e.clock) / step) }
func (e *incident) last() int  { return e.first() + int(e.lasts/step) - 1 }

type moment struct {
	usual  float64 // value without the incident
	before float64 // value of the last row before the incident
	x      float64 // 0 at the first row, 1 at the last one
	r      *rand.Rand
}

func (s *series) values(r *rand.Rand) []float64 {
	usual, values := s.usual(r), make([]float64, rows)
	for row := range values {
		v := usual(row)
		for _, e := range s.incidents {
			if a, b := e.first(), e.last(); a <= row && row <= b {
				v = e.effect(moment{v, values[a-1], float64(row-a) / float64(b-a), r})
			}
		}
		values[row] = min(max(v, s.low), s.high)
	}
	return values
}

func hour(row int) (h float64, weekend bool) {
	t := time.Duration(row) * step
	return math.Mod(t.Hours(), 24), int(t.Hours()/24)%7 >= 5
}

// daytime is near 0 at night and near 1 in the afternoon; less at the weekend.
func daytime(row int) float64 {
	h, weekend := hour(row)
	d := (1 - math.Cos(2*math.Pi*(h-3)/24)) / 2
	if weekend {
		return 0.5 * d
	}
	return d
}

// drift returns noise that remembers share of itself from row to row, with the spread given.
func drift(r *rand.Rand, share, spread float64) func() float64 {
	v := 0.0
	return func() float64 {
		v = share*v + math.Sqrt(1-share*share)*spread*r.NormFloat64()
		return v
	}
}
