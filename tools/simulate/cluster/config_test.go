package cluster

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// TestParseRefuses: errors name the file, the key and what to use.
func TestParseRefuses(t *testing.T) {
	const good = "name: x\ntimes: [a]\nshards: 1\nload: {rows: 1, window: 1}\nbrokers: {count: 1, cores: 1}\n"
	if _, err := Parse("f.yaml", []byte(good)); err != nil {
		t.Fatalf("a valid configuration: %v", err)
	}
	for change, want := range map[string]string{
		"shard: 1":                          `f.yaml:6: unknown key "shard": did you mean "shards"?`,
		"place: here":                       `place is "here": use one, pair or apart`,
		"place: pair":                       "writers.count is 0: use 1 to 10000",
		"agents: {device: tpu}":             `agents.device is "tpu": use host or gpu`,
		"agents: {device: gpu}":             "agents.gpus is 0",
		"length: -1s":                       "use up to an hour",
		"uplink: {loss: 1}":                 "uplink has loss 1",
		"uplink: {flow_rate: fast}":         `"fast" is no number`,
		"faults: [{kind: disk}]":            `fault 1 is of kind "disk": use agent, broker or writer`,
		"faults: [{kind: agent, host: 1}]":  "fault 1 is of host 1: there are 1",
		"prices: {gpu: -1}":                 "a price is -1",
		"sweep: {key: speed, values: [1]}":  `sweep.key is "speed": use one of agents.count`,
		"sweep: {chart: pie}":               `sweep.chart is "pie"`,
		"brokers: {count: 1, cores: 1}":     `key "brokers" is given twice`,
		"gateway: {flows: 5000}":            "gateway.flows is 5000",
		"sweep: {with: {shards: -1}}":       `sweep.with sets "shards" to -1`,
		"warmup: 2h":                        "warmup 2h0m0s",
		"agents: {count: 1, per_row: .nan}": "",
	} {
		_, err := Parse("f.yaml", []byte(good+change+"\n"))
		if want == "" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", change, err, want)
		}
	}
	for text, want := range map[string]string{
		"shards: 1":              "times names no file of measurements; load.rows is 0",
		"shards: 30000":          "shards is 30000: use 1 to 20000",
		"load: {row: .inf}":      "use 0 to 1e6",
		"brokers: {replicas: 2}": "brokers.replicas is 2: use 1 or 3",
	} {
		if _, err := Parse("f.yaml", []byte(text)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want an ErrConfig with %q", text, err, want)
		}
	}
}

// TestParseNumber reads units.
func TestParseNumber(t *testing.T) {
	for text, want := range map[string]float64{
		"100Gb/s": 1e11, "4MiB": 4 << 20, "1.5k": 1500, "0": 0, " 2 M ": 2e6, "1Tb/s": 1e12,
	} {
		if got, err := ParseNumber(text); err != nil || got != want {
			t.Errorf("ParseNumber(%q) is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1e999", "NaN", "Inf", "1 apple", "1e308G"} {
		if v, err := ParseNumber(text); !errors.Is(err, ErrConfig) {
			t.Errorf("ParseNumber(%q) is %v, %v, want an ErrConfig", text, v, err)
		}
	}
}

// TestSweep: each value is simulated, with what follows it, and the configuration stays as it is.
func TestSweep(t *testing.T) {
	c := configured(t, "load: {rows: 1, window: 8}\n"+oneHost+
		"sweep: {key: shards, values: [1, 2, 4], with: {load.window: 2}, "+
		"lines: {key: load.encoders, values: [1, 2]}}\n")
	all, err := Run(c, []*times.File{stageTimes{encode: 1000, append: 10}.file()})
	if err != nil || len(all) != 6 {
		t.Fatalf("%d points, %v, want 6", len(all), err)
	}
	for _, p := range all {
		want := p.Value * p.Line * 1000
		if p.Report.Entries > want*1.02 || p.Report.Entries < want*0.9 {
			t.Errorf("%v shards with %v encoders have %v entries/s, want %v", p.Value, p.Line, p.Report.Entries, want)
		}
	}
	if c.Shards != 1 || c.Load.Window != 8 {
		t.Errorf("the configuration has changed: %+v", c)
	}
	for _, key := range []string{"speed", "shards"} {
		if err := c.Set(key, -1); !errors.Is(err, ErrConfig) {
			t.Errorf("Set(%q, -1): %v, want an ErrConfig", key, err)
		}
	}
}

// FuzzParse: any bytes are refused, or are a configuration whose numbers are within their limits.
func FuzzParse(f *testing.F) {
	f.Add([]byte("name: x\ntimes: [a]\nshards: 1\nload: {rows: 1, window: 1}\nbrokers: {count: 1, cores: 1}\n"))
	f.Add([]byte("place: apart\nuplink: {rtt: 80ms, loss: 0.01, window: 4MiB}\nfaults: [{at: 1s, kind: agent}]\n"))
	f.Add([]byte("sweep: {key: shards, values: [1k], with: {cores: 0.5}}\nprices: {core: 0.04}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		if c.Shards < 1 || c.Shards > maxShards || c.Load.Rows < 1 || c.Length <= 0 || c.Uplink.cap() < 0 ||
			c.Brokers.Count < 1 || c.Agents.Count < 1 || c.Load.Encoders < 1 {
			t.Fatalf("accepted: %+v", c)
		}
	})
}

// TestSetProperties: a number that was set is valid, or refused.
func TestSetProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := Parse("x", []byte("name: x\ntimes: [a]\nshards: 1\nload: {rows: 1, window: 1}\n"+
			"brokers: {count: 1, cores: 1}\n"))
		if err != nil {
			t.Fatal(err)
		}
		for key := range settable {
			one := *c
			if err := one.Set(key, rapid.Float64().Draw(t, key)); err == nil && one.check() != nil {
				t.Fatalf("%s was set to what is invalid: %v", key, one.check())
			}
		}
	})
}
