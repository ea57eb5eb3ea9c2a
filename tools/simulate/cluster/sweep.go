package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// settable are the numbers of a configuration that a sweep may change.
var settable = map[string]func(c *Config, v float64){
	"shards": func(c *Config, v float64) { c.Shards = int(v) },
	"cores": func(c *Config, v float64) {
		c.Writers.Cores, c.Brokers.Cores, c.Agents.Cores = int(v), int(v), int(v)
	},
	"load.rows":     func(c *Config, v float64) { c.Load.Rows = int(v) },
	"load.rate":     func(c *Config, v float64) { c.Load.Rate = Number(v) },
	"load.window":   func(c *Config, v float64) { c.Load.Window = int(v) },
	"load.encoders": func(c *Config, v float64) { c.Load.Encoders = int(v) },
	"card": func(c *Config, v float64) {
		c.Writers.Card, c.Brokers.Card, c.Agents.Card = Number(v), Number(v), Number(v)
	},
	"flow_rate":     func(c *Config, v float64) { c.Uplink.FlowRate, c.Local.FlowRate = Number(v), Number(v) },
	"uplink.flows":  func(c *Config, v float64) { c.Uplink.Flows = int(v) },
	"uplink.window": func(c *Config, v float64) { c.Uplink.Window = Number(v) },
	"uplink.rtt":    func(c *Config, v float64) { c.Uplink.RTT = strictyaml.Duration(v * 1e6) }, // milliseconds
	"uplink.loss":   func(c *Config, v float64) { c.Uplink.Loss = v },
	"gateway.flows": func(c *Config, v float64) { c.Gateway.Flows = int(v) },
	"gateway.window": func(c *Config, v float64) {
		c.Gateway.Window = Number(v)
	},
	"writers.count": func(c *Config, v float64) { c.Writers.Count = int(v) },
	"brokers.count": func(c *Config, v float64) { c.Brokers.Count = int(v) },
	"agents.count":  func(c *Config, v float64) { c.Agents.Count = int(v) },
	"agents.gpus":   func(c *Config, v float64) { c.Agents.GPUs = int(v) },
}

// Set changes a number and checks the configuration.
func (c *Config) Set(key string, v float64) error {
	set := settable[key]
	if set == nil {
		return fmt.Errorf("%w: a sweep of %q: use one of %s", ErrConfig, key,
			strings.Join(slices.Sorted(maps.Keys(settable)), ", "))
	}
	if !(v >= 0) || v > 1e15 {
		return fmt.Errorf("%w: %s is %v: use 0 to 1e15", ErrConfig, key, v)
	}
	set(c, v)
	c.defaults()
	return c.check()
}

const maxSweep = 64

func (c *Config) checkSweep(bad func(is bool, format string, args ...any)) {
	s := c.Sweep
	bad(len(s.Values) > maxSweep || len(s.Lines.Values) > 16, "sweep has %d values in %d lines: use up to %d in 16",
		len(s.Values), len(s.Lines.Values), maxSweep)
	bad(len(s.Values) > 0 && settable[s.Key] == nil, "sweep.key is %q: use one of %s", s.Key,
		strings.Join(slices.Sorted(maps.Keys(settable)), ", "))
	bad(len(s.Lines.Values) > 0 && settable[s.Lines.Key] == nil, "sweep.lines.key is %q", s.Lines.Key)
	bad(s.Chart != "" && s.Chart != "rows" && s.Chart != "bits", "sweep.chart is %q: use rows or bits", s.Chart)
	for key, factor := range s.With {
		bad(settable[key] == nil || !(factor >= 0) || math.IsInf(factor, 0), "sweep.with sets %q to %v", key, factor)
	}
}

// Point is the report of one simulation of a sweep.
type Point struct {
	Line, Value float64
	Report      *Report
}

// Run simulates all values of the sweep of a configuration, the values of a line together; without
// a sweep it makes one simulation.
func Run(c *Config, files []*times.File) (all []Point, err error) {
	values, lines := c.Sweep.Values, c.Sweep.Lines.Values
	if len(values) == 0 {
		values = []Number{0}
	}
	if len(lines) == 0 {
		lines = []Number{0}
	}
	for _, line := range lines {
		for _, value := range values {
			one := *c
			if c.Sweep.Lines.Key != "" {
				if err := one.Set(c.Sweep.Lines.Key, float64(line)); err != nil {
					return nil, err
				}
			}
			if c.Sweep.Key != "" {
				for _, key := range slices.Sorted(maps.Keys(c.Sweep.With)) {
					if err := one.Set(key, max(1, math.Round(float64(value)*c.Sweep.With[key]))); err != nil {
						return nil, err
					}
				}
				if err := one.Set(c.Sweep.Key, float64(value)); err != nil {
					return nil, err
				}
			}
			r, err := Simulate(&one, files)
			if err != nil {
				return nil, fmt.Errorf("%s, %s %v: %w", c.Name, c.Sweep.Key, float64(value), err)
			}
			all = append(all, Point{float64(line), float64(value), r})
		}
	}
	return all, nil
}
