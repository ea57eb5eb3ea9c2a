package cluster

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// Config describes a cluster and its load. Times of the stages come from files of measurements. All
// prices are assumptions of the file.
type Config struct {
	Name   string              `yaml:"name"`
	Times  []string            `yaml:"times"` // files of measurements, beside the configuration
	Seed   uint64              `yaml:"seed"`
	Length strictyaml.Duration `yaml:"length"` // that counts
	Warmup strictyaml.Duration `yaml:"warmup"` // before it

	Shards int  `yaml:"shards"`
	Load   Load `yaml:"load"`
	// Place is where the parts are: one host has all of them, with the counts and cores of the
	// brokers; pair has the agents on the hosts of the brokers; apart has hosts for each.
	Place   string  `yaml:"place"`
	Writers Hosts   `yaml:"writers"` // of entries, and readers of answers
	Brokers Brokers `yaml:"brokers"`
	Agents  Agents  `yaml:"agents"`
	Uplink  Network `yaml:"uplink"` // between writers and brokers
	Local   Network `yaml:"local"`  // between brokers and agents
	// Gateway is what all entries pass from brokers to agents in another cluster: its flows are all
	// that there are between the two; no flows: there is none.
	Gateway Network `yaml:"gateway"`
	Faults  []Fault `yaml:"faults"`
	Prices  Prices  `yaml:"prices"`
	Sweep   Sweep   `yaml:"sweep"`
}

// Load is what each shard is sent.
type Load struct {
	Rows   int    `yaml:"rows"`   // of an entry
	Window int    `yaml:"window"` // entries of a shard without an answer; 0: no bound, and rate is set
	Rate   Number `yaml:"rate"`   // entries a second of all shards together, at random times; 0: the window bounds
	// Row is the bytes of a row in an entry, and AnswerRow in an answer; 0: as measured. Aggregate is
	// how many rows of a source a writer makes one row of; 0 means 1.
	Row       float64 `yaml:"row"`
	AnswerRow float64 `yaml:"answer_row"`
	Aggregate float64 `yaml:"aggregate"`
	// DecodeRow is the nanoseconds of a row to decode; 0: as measured. Rows that come as they are in
	// memory need less than packed ones.
	DecodeRow float64 `yaml:"decode_row"`
	// Encoders is the number of entries of a shard that a writer packs at the same time; 0 means 1.
	// Ready entries wait for the append before them.
	Encoders int `yaml:"encoders"`
	// Packed skips the packing: the entries come packed, as from a leaf node.
	Packed bool `yaml:"packed"`
}

// Hosts are equal machines. Shards are on them in turn.
type Hosts struct {
	Count int    `yaml:"count"`
	Cores int    `yaml:"cores"`
	Card  Number `yaml:"card"` // bits a second of the network card, in each direction
}

// Brokers are NATS servers, one a host.
type Brokers struct {
	Count    int    `yaml:"count"`
	Cores    int    `yaml:"cores"`
	Card     Number `yaml:"card"`
	Replicas int    `yaml:"replicas"` // of each log: 1 or 3
}

func (b Brokers) hosts() Hosts { return Hosts{b.Count, b.Cores, b.Card} }

func (a Agents) hosts() Hosts { return Hosts{a.Count, a.Cores, a.Card} }

// Agents are GPU agents, one a host.
type Agents struct {
	Count  int    `yaml:"count"`
	Cores  int    `yaml:"cores"`
	Card   Number `yaml:"card"`
	Device string `yaml:"device"` // host, or gpu
	GPUs   int    `yaml:"gpus"`   // of a host; shards are on them in turn
	// Batch and PerRow are the time of a batch on a GPU, from the copy to the answers in host memory,
	// and Copy the bytes of a row that pass to it and back, at Bus.
	Batch  strictyaml.Duration `yaml:"batch"`
	PerRow float64             `yaml:"per_row"` // nanoseconds
	Copy   float64             `yaml:"copy"`    // bytes
	// MergeRow is the nanoseconds of a row to add it to a batch for a GPU, which ranks the rows
	// itself; the host device has the measured time.
	MergeRow float64 `yaml:"merge_row"`
	Bus      Number  `yaml:"bus"` // bits a second
}

// Network is a way between the cards of two hosts.
type Network struct {
	Flows    int                 `yaml:"flows"`     // TCP connections of a shard; 0 means 1
	FlowRate Number              `yaml:"flow_rate"` // bits a second that the network allows a flow; 0: all
	RTT      strictyaml.Duration `yaml:"rtt"`       // from one end to the other and back
	Loss     float64             `yaml:"loss"`      // the share of packets that are lost
	Window   Number              `yaml:"window"`    // bytes that a flow has in transit; 0: 4 MiB
}

// Fault ends something at a time after the warm-up.
type Fault struct {
	At   strictyaml.Duration `yaml:"at"`
	Kind string              `yaml:"kind"` // agent, broker, writer
	Host int                 `yaml:"host"`
	// For is the time without service: an election takes 4 to 9 s, and the shards of a lost agent
	// wait for the end of its lease and a replay. Until is the longest time, which is drawn between
	// the two; 0: For.
	For   strictyaml.Duration `yaml:"for"`
	Until strictyaml.Duration `yaml:"until"`
}

// Prices are assumptions, for an hour.
type Prices struct {
	Core    float64 `yaml:"core"`
	GPU     float64 `yaml:"gpu"`
	Gbps    float64 `yaml:"gbps"`    // of a network card
	Written float64 `yaml:"written"` // a TB that is written to disk
}

// Sweep runs the configuration for each value of one of its numbers, and draws a chart.
type Sweep struct {
	Key    string   `yaml:"key"` // see Set
	Values []Number `yaml:"values"`
	// With sets other numbers in proportion to the value, at least 1: 0.5 sets half of it.
	With map[string]float64 `yaml:"with"`
	// Lines repeats all for each value of another number; each is a line of the chart.
	Lines struct {
		Key    string   `yaml:"key"`
		Values []Number `yaml:"values"`
	} `yaml:"lines"`
	Chart string `yaml:"chart"` // what the chart has: rows or bits a second; empty: rows
	Axis  string `yaml:"axis"`  // name of the numbers in the chart and the table
}

// Number is a number with a unit, as in 100Gb/s, 4MiB, 1.5k or 0.25.
type Number float64

// UnmarshalYAML reads the forms that Number documents.
func (v *Number) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := ParseNumber(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*v = Number(parsed)
	return nil
}

var units = []struct {
	name   string
	factor float64
}{
	{"Tb/s", 1e12},
	{"Gb/s", 1e9},
	{"Mb/s", 1e6},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"G", 1e9},
	{"M", 1e6},
	{"k", 1e3},
}

// ParseNumber reads a finite number of at least 0 with a unit. The error is an ErrConfig.
func ParseNumber(text string) (float64, error) {
	digits, factor := strings.TrimSpace(text), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(digits, u.name); ok {
			digits, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	v, err := dialect.Float(digits, 64)
	if v *= factor; err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%w: %.40q is no number: write one of at least 0, as in 12.5k, 4MiB or 100Gb/s", ErrConfig,
			text)
	}
	return v, nil
}

// Parse reads a configuration in YAML and checks it. Errors are of package strictyaml, or an
// ErrConfig.
func Parse(file string, data []byte) (*Config, error) {
	c := &Config{}
	if err := strictyaml.Decode(file, data, c); err != nil {
		return nil, err
	}
	c.defaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func (c *Config) defaults() {
	if c.Load.Aggregate == 0 {
		c.Load.Aggregate = 1
	}
	if c.Load.Encoders == 0 {
		c.Load.Encoders = 1
	}
	if c.Length == 0 {
		c.Length = strictyaml.Duration(10 * time.Second)
	}
	if c.Brokers.Replicas == 0 {
		c.Brokers.Replicas = 1
	}
	if c.Agents.Device == "" {
		c.Agents.Device = "host"
	}
	if c.Place == "" {
		c.Place = placeOne
	}
	if c.Place == placeOne {
		c.Writers = Hosts{c.Brokers.Count, c.Brokers.Cores, 0}
	}
	if c.Place != placeApart {
		c.Agents.Count, c.Agents.Cores, c.Agents.Card = c.Brokers.Count, c.Brokers.Cores, c.Brokers.Card
	}
	for _, n := range []*Network{&c.Uplink, &c.Local, &c.Gateway} {
		if n.Flows == 0 && n != &c.Gateway {
			n.Flows = 1
		}
		if n.Window == 0 {
			n.Window = 4 << 20
		}
	}
}

// The values of Config.Place.
const (
	placeOne   = "one"
	placePair  = "pair"
	placeApart = "apart"
)

// Limits of a configuration, which bound the memory of a simulation.
const (
	maxShards = 20_000
	maxHosts  = 10_000
	maxLength = strictyaml.Duration(time.Hour)
	maxRows   = 10_000_000
)

func (c *Config) check() error {
	var wrong []string
	bad := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	within := func(name string, v, low, high int) {
		bad(v < low || v > high, "%s is %d: use %d to %d", name, v, low, high)
	}
	bad(len(c.Times) == 0, "times names no file of measurements")
	within("shards", c.Shards, 1, maxShards)
	within("load.rows", c.Load.Rows, 1, maxRows)
	within("load.window", c.Load.Window, 0, 1_000_000)
	within("load.encoders", c.Load.Encoders, 1, 1024)
	bad(c.Load.Window == 0 && c.Load.Rate == 0, "load has neither window nor rate: set one of them")
	bad(!(c.Load.DecodeRow >= 0) || c.Load.DecodeRow > 1e6, "load.decode_row is %v: use 0 to 1e6", c.Load.DecodeRow)
	bad(!(c.Load.Row >= 0) || !(c.Load.AnswerRow >= 0) || !(c.Load.Aggregate > 0) || c.Load.Row > 1e6 ||
		c.Load.AnswerRow > 1e6 || c.Load.Aggregate > 1e6,
		"load has row %v, answer_row %v and aggregate %v: use 0 to 1e6", c.Load.Row, c.Load.AnswerRow, c.Load.Aggregate)
	for _, h := range []struct {
		name string
		of   Hosts
	}{{"writers", c.Writers}, {"brokers", c.Brokers.hosts()}, {"agents", c.Agents.hosts()}} {
		within(h.name+".count", h.of.Count, 1, maxHosts)
		within(h.name+".cores", h.of.Cores, 1, 4096)
		bad(c.Place != placeOne && h.of.Card == 0, "%s.card is 0: set the rate of the network card", h.name)
	}
	bad(c.Brokers.Replicas != 1 && c.Brokers.Replicas != 3, "brokers.replicas is %d: use 1 or 3", c.Brokers.Replicas)
	bad(c.Length <= 0 || c.Warmup < 0 || c.Length > maxLength || c.Warmup > maxLength,
		"length is %v and warmup %v: use up to an hour", time.Duration(c.Length), time.Duration(c.Warmup))
	switch c.Agents.Device {
	case "host":
	case "gpu":
		within("agents.gpus", c.Agents.GPUs, 1, 64)
		bad(!(c.Agents.MergeRow >= 0), "agents.merge_row is %v", c.Agents.MergeRow)
		bad(c.Agents.Batch <= 0 || !(c.Agents.PerRow >= 0) || !(c.Agents.Copy >= 0) || c.Agents.Bus <= 0,
			"agents of device gpu need batch, per_row, copy and bus")
	default:
		bad(true, "agents.device is %q: use host or gpu", c.Agents.Device)
	}
	for _, n := range []struct {
		name string
		of   Network
	}{{"uplink", c.Uplink}, {"local", c.Local}, {"gateway", c.Gateway}} {
		within(n.name+".flows", n.of.Flows, 0, 1024)
		bad(!(n.of.Loss >= 0 && n.of.Loss < 1) || n.of.RTT < 0 || n.of.RTT > strictyaml.Duration(time.Minute),
			"%s has loss %v and rtt %v: use a share below 1 and up to a minute", n.name, n.of.Loss,
			time.Duration(n.of.RTT))
	}
	bad(c.Place != placeOne && c.Place != placePair && c.Place != placeApart,
		"place is %q: use one, pair or apart", c.Place)
	for i, f := range c.Faults {
		n := map[string]int{"agent": c.Agents.Count, "broker": c.Brokers.Count, "writer": c.Writers.Count}[f.Kind]
		bad(n == 0, "fault %d is of kind %q: use agent, broker or writer", i+1, f.Kind)
		bad(n > 0 && (f.Host < 0 || f.Host >= n), "fault %d is of host %d: there are %d, from 0 on", i+1, f.Host, n)
		bad(f.At < 0 || f.At > maxLength || f.For < 0 || f.For > maxLength || f.Until < 0 || f.Until > maxLength,
			"fault %d: use times up to an hour", i+1)
	}
	for _, p := range []float64{c.Prices.Core, c.Prices.GPU, c.Prices.Gbps, c.Prices.Written} {
		bad(!(p >= 0) || math.IsInf(p, 0), "a price is %v: use at least 0", p)
	}
	c.checkSweep(bad)
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrConfig, strings.Join(wrong, "; "))
	}
	return nil
}
