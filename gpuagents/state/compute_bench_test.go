package state

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	computeAgents = flag.Int(
		"compute-agents",
		0,
		"agents of BenchmarkCompute; 0: 100 million, and 1 on the host device",
	)
	computePaged = flag.Int("compute-frames", 0, "pages of the device in BenchmarkCompute; 0: all are resident")
)

// readRate is the rate at which one H200 reads memory, in bytes a second.
const readRate = 4.31e12

// BenchmarkCompute measures the call of a question over resident agents with random state. It
// reports the bytes of the variables that the text names, by the rate of reading.
func BenchmarkCompute(b *testing.B) {
	n := *computeAgents
	if n == 0 {
		if n = 100_000_000; *opentest.Name == "host" {
			n = 1_000_000
		}
	}
	for _, kind := range []struct {
		name, cell, features string
		texts                map[string]int // bytes of an agent
	}{
		{"leaky", "leaky", "current, gain", map[string]int{
			"sum(potential)":                                      4,
			"mean(abs(potential)) where vote == 1":                5,
			"mean(abs(potential)) by vote":                        5,
			"count(vote == 1)":                                    1,
			"x = mean(potential); y = max(trace); z = min(trace)": 8,
		}},
		{"gru", "gru, params: {hidden: 8}", "x", map[string]int{
			"mean(abs(hidden)) where vote == 1":   33,
			"sum(hidden); m = sum(hidden*hidden)": 32,
			"mean(input) where vote == 1":         5,
		}},
	} {
		s := randomState(b, fmt.Sprintf("name: x\naddressed: agent\nagents: %d\nagents_per_group: 64\n"+
			"features: [%s]\ncell: {kind: %s}\nvote: {candidates: [a, b], rule: plurality}\n",
			n/64*64, kind.features, kind.cell))
		for text, bytes := range kind.texts {
			b.Run(kind.name+"/"+text, func(b *testing.B) {
				computeTimes(b, s, text, float64(bytes)*float64(n/64*64))
			})
		}
		b.Run(kind.name+"/by group", func(b *testing.B) {
			text, bytes := "mean(abs(potential)) by group where vote == 1", 5
			if kind.name == "gru" {
				text, bytes = "mean(abs(hidden)) by group where vote == 1", 33
			}
			groups := min(40_000, n/64)
			computeWant(b, s, swarms.Compute{Version: 1, Text: text, Groups: groups}, float64(bytes*groups)*64)
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// randomState makes agents whose pages all have one random content.
func randomState(b *testing.B, text string) *agentState {
	b.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	var budget *pages.Budget
	if *computePaged > 0 {
		budget = pages.NewBudget(int64(*computePaged)*int64(spec.PageSize), 64<<30)
	}
	p, err := newWhole(openNamed(b, *opentest.Name), budget, spec, spec.Groups())
	if err != nil {
		b.Fatal(err)
	}
	s := p.(*agentState)
	r := rand.New(rand.NewPCG(24, 24))
	content := make([]byte, spec.PageSize)
	for i := 0; i < len(content); i += 4 {
		binary.LittleEndian.PutUint32(content[i:], math.Float32bits(float32(r.NormFloat64())))
	}
	l := s.agents.Layout()
	for i, v := range l.Vars {
		if v.Name == "vote" {
			for k := range l.Slots * l.Agents {
				content[int(l.Offsets[i])+k] = byte(1 + r.IntN(2))
			}
		}
	}
	if err := s.Reset(b.Context()); err != nil {
		b.Fatal(err)
	}
	for page := range s.memory.Count() {
		if err := s.memory.Write(b.Context(), uint64(page), content); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func computeTimes(b *testing.B, s *agentState, text string, bytes float64) {
	b.Helper()
	computeWant(b, s, swarms.Compute{Version: 1, Text: text}, bytes)
}

func computeWant(b *testing.B, s *agentState, want swarms.Compute, bytes float64) {
	b.Helper()
	entry := swarms.Entry{Kind: swarms.EntryCompute, Data: encoded(b, want)}
	begin := time.Now()
	if _, err := s.Apply(b.Context(), entry); err != nil {
		b.Fatal(err)
	}
	first := time.Since(begin)
	var took []float64
	for b.Loop() {
		begin := time.Now()
		if _, err := s.Apply(b.Context(), entry); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin).Seconds())
	}
	middle := median(took)
	b.ReportMetric(middle*1e6, "us/call")
	b.ReportMetric(bytes/middle/1e9, "GB/s")
	b.ReportMetric(100*bytes/readRate/middle, "%ofread")
	b.ReportMetric(first.Seconds()*1e3, "ms/first")
}
