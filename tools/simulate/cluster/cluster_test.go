package cluster

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/tools/simulate/station"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// stageTimes are the constant times of the stages of a test, in microseconds.
type stageTimes struct{ encode, append, fetch, decode, merge, observe, answer float64 }

// file returns measurements in which each stage takes its constant time, whatever its conditions,
// and no processor time but where the stage is a computation.
func (s stageTimes) file() *times.File {
	f := &times.File{}
	add := func(name string, us float64, keys map[string]float64) {
		series := times.Series{Name: name, Keys: keys}
		for range 4 {
			series.Times.Add(int64(us * 1000))
		}
		f.Series = append(f.Series, series)
	}
	add("encode", s.encode, map[string]float64{"beside": 0, "rows": 1, "bytes": 1000})
	add("append", s.append, map[string]float64{"beside": 0, "idle": 0, "entries": 1, "bytes": 1000, "together": 1})
	add("append", 1e5, map[string]float64{"beside": 0, "idle": 0, "entries": 16, "bytes": 1000, "together": 1})
	add("raft", s.append, map[string]float64{"bytes": 1000, "together": 1})
	add("deliver", 0, map[string]float64{"bytes": 1000})
	for _, k := range []float64{1, 4} {
		rate := 1e12
		if s.fetch > 1e-3 {
			rate = k * 1e6 / s.fetch
		}
		add("fetch", s.fetch, map[string]float64{"together": k, "bytes": 1000, "rate": rate})
	}
	add("decode", s.decode, map[string]float64{"rows": 1})
	add("merge", s.merge, map[string]float64{"rows": 1, "entries": 1})
	add("observe", s.observe, map[string]float64{"together": 1, "rows": 1, "entries": 1})
	add("workers", s.observe, map[string]float64{"workers": 1, "rows": 1, "cpu": s.observe * 1000})
	add("answer", s.answer, map[string]float64{"rows": 1, "bytes": 600})
	add("cores", 1, map[string]float64{"together": 1})
	return f
}

func configured(tb testing.TB, lines string) *Config {
	tb.Helper()
	c, err := Parse("test.yaml", []byte("name: test\ntimes: [a.times]\nlength: 1s\nshards: 1\n"+lines))
	if err != nil {
		tb.Fatalf("Parse: %v", err)
	}
	return c
}

func simulated(tb testing.TB, c *Config, s stageTimes) *Report {
	tb.Helper()
	r, err := Simulate(c, []*times.File{s.file()})
	if err != nil {
		tb.Fatalf("Simulate: %v", err)
	}
	return r
}

const oneHost = "brokers: {count: 1, cores: 64}\n"

// TestBottleneck: the slowest stage gives the rate of a shard under a window that is large enough,
// and a window of one gives one entry for the time of the whole way.
func TestBottleneck(t *testing.T) {
	base := stageTimes{encode: 100, append: 100, fetch: 50, decode: 100, merge: 50, observe: 100, answer: 50}
	for name, test := range map[string]struct {
		change func(s *stageTimes)
		want   float64 // entries a second
	}{
		"encode and append are one goroutine": {func(*stageTimes) {}, 5000},
		"encode":                              {func(s *stageTimes) { s.encode = 900 }, 1000},
		"append":                              {func(s *stageTimes) { s.append = 900 }, 1000},
		"fetch":                               {func(s *stageTimes) { s.fetch = 1000 }, 1000},
		"decode":                              {func(s *stageTimes) { s.decode = 1000 }, 1000},
		"merge":                               {func(s *stageTimes) { s.merge = 1000 }, 1000},
		"observe":                             {func(s *stageTimes) { s.observe = 1000 }, 1000 * 64}, // merged
	} {
		t.Run(name, func(t *testing.T) {
			s := base
			test.change(&s)
			r := simulated(t, configured(t, "load: {rows: 1, window: 400}\n"+oneHost), s)
			if name == "observe" { // entries are merged, so the writer sets the rate
				test.want = 5000
			}
			if math.Abs(r.Entries/test.want-1) > 0.03 {
				t.Errorf("%.0f entries/s, want %.0f; %+v", r.Entries, test.want, r.Use[:3])
			}
		})
	}
	r := simulated(t, configured(t, "load: {rows: 1, window: 1}\n"+oneHost), base)
	want := 100.0 + 100 + 50 + 100 + 50 + 100 + 50 + 100 + 50 // the last two: append and fetch of the answer
	if got := r.Latency.Quantile(0.5) / 1000; math.Abs(got/want-1) > 0.03 {
		t.Errorf("the way of a lone entry takes %.0f us, want %.0f; %v", got, want, r.Parts)
	}
}

// TestSameSeed: a seed gives the same report, and another seed other latencies.
func TestSameSeed(t *testing.T) {
	s := stageTimes{encode: 100, append: 200, observe: 150}
	run := func(seed int) *Report {
		c := configured(t, fmt.Sprintf("seed: %d\nload: {rows: 1, rate: 2000}\nuplink: {rtt: 1ms, loss: 0.1}\n"+
			"place: apart\n"+
			"writers: {count: 1, cores: 4, card: 1Gb/s}\nbrokers: {count: 1, cores: 4, card: 1Gb/s}\n"+
			"agents: {count: 1, cores: 4, card: 1Gb/s}\n", seed))
		return simulated(t, c, s)
	}
	first := run(1)
	if !reflect.DeepEqual(first, run(1)) {
		t.Error("the same seed gives another report")
	}
	if reflect.DeepEqual(first.Latency, run(2).Latency) {
		t.Error("another seed gives the same latencies")
	}
}

// TestNetworks: cards, flows, windows over round trips, and losses bound the rate as arithmetic
// says.
func TestNetworks(t *testing.T) {
	const hosts = "writers: {count: 1, cores: 64, card: %s}\nbrokers: {count: 1, cores: 64, card: %s}\n" +
		"agents: {count: 1, cores: 64, card: %s}\nplace: apart\n"
	s := stageTimes{encode: 1, append: 1, observe: 1}
	for name, test := range map[string]struct {
		lines string
		card  string
		want  float64 // bits a second
	}{
		"card":      {"uplink: {flows: 4}\n", "100Mb/s", 100e6},
		"flow":      {"uplink: {flows: 1, flow_rate: 50Mb/s}\n", "10Gb/s", 50e6},
		"two flows": {"uplink: {flows: 2, flow_rate: 50Mb/s}\n", "10Gb/s", 100e6},
	} {
		t.Run(name, func(t *testing.T) {
			c := configured(t, "load: {rows: 1, row: 125000, answer_row: 1, window: 64}\n"+test.lines+
				fmt.Sprintf(hosts, test.card, test.card, test.card))
			c.Length *= 10
			r := simulated(t, c, s)
			want := test.want
			if r.Bits > want*1.01 || r.Bits < want*0.8 {
				t.Errorf("%.3g bits/s, want %.3g; %v", r.Bits, want, r.Use[:3])
			}
		})
	}
	n := Network{Window: 1 << 20, RTT: 1e7}
	if got, want := n.cap()*1e9, float64(1<<20)/0.01; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("a window of 1 MiB over 10 ms has %v bytes/s, want %v", got, want)
	}
	n.Loss = 1e-4
	if got, want := n.cap()*1e9, segment*math.Sqrt(1.5e4)/0.01; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("with a loss of 1e-4 it has %v bytes/s, want %v", got, want)
	}
}

// TestFaults: kills of agents, brokers and writers lose no entry; the longest latency is the pause,
// and the rate recovers.
func TestFaults(t *testing.T) {
	s := stageTimes{encode: 100, append: 200, decode: 50, merge: 20, observe: 500, answer: 50}
	for _, kind := range []string{"agent", "broker", "writer"} {
		t.Run(kind, func(t *testing.T) {
			c := configured(t, "load: {rows: 1, rate: 1000}\nfaults: [{at: 1s, kind: "+kind+", for: 2s, until: 3s}, "+
				"{at: 1500ms, kind: agent, for: 100ms}]\n"+oneHost)
			c.Length = c.Length * 10
			r := simulated(t, c, s)
			if r.Longest < 2*time.Second || r.Longest > 3500*time.Millisecond {
				t.Errorf("the longest latency is %v, want 2 to 3 s; %v", r.Longest, r.Parts)
			}
			if r.Backlog > 50 || math.Abs(r.Entries/1000-1) > 0.05 {
				t.Errorf("%v entries/s and %d without an answer at the end, want 1000 and a few", r.Entries, r.Backlog)
			}
		})
	}
}

// TestModelProperties: random clusters keep Little's law, lose no entry under faults, and answer no
// more than arrives; the audits are part of Simulate.
func TestModelProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Float64Range(0, 2000)
		s := stageTimes{
			us.Draw(t, "encode"), us.Draw(t, "append"), us.Draw(t, "fetch"), us.Draw(t, "decode"), us.Draw(t, "merge"),
			us.Draw(t, "observe"), us.Draw(t, "answer"),
		}
		place := rapid.SampledFrom([]string{"one", "pair", "apart"}).Draw(t, "place")
		text := fmt.Sprintf("name: x\ntimes: [a]\nlength: 200ms\nwarmup: 50ms\nseed: %d\nplace: %s\nshards: %d\n",
			rapid.IntRange(0, 9).Draw(t, "seed"), place, rapid.IntRange(1, 6).Draw(t, "shards"))
		rate := rapid.SampledFrom([]int{0, 100, 3000}).Draw(t, "rate")
		text += fmt.Sprintf("load: {rows: %d, window: %d, rate: %d, encoders: %d}\n",
			rapid.IntRange(1, 70_000).Draw(t, "rows"), rapid.IntRange(1, 40).Draw(t, "window"), rate,
			rapid.IntRange(1, 3).Draw(t, "encoders"))
		n := rapid.IntRange(1, 3)
		text += fmt.Sprintf("writers: {count: %d, cores: 4, card: 1Gb/s}\n", n.Draw(t, "writers"))
		text += fmt.Sprintf("brokers: {count: %d, cores: 4, card: 1Gb/s, replicas: %d}\n", n.Draw(t, "brokers"),
			rapid.SampledFrom([]int{1, 3}).Draw(t, "replicas"))
		text += fmt.Sprintf("agents: {count: %d, cores: 4, card: 1Gb/s, device: %s, gpus: 2, batch: 1ms, per_row: 1, "+
			"copy: 8, bus: 10Gb/s}\n", n.Draw(t, "agents"),
			rapid.SampledFrom([]string{"host", "gpu"}).Draw(t, "device"))
		text += "uplink: {rtt: 1ms, loss: 0.01, flows: 2}\ngateway: {rtt: 10ms, flows: 1}\nfaults:\n"
		for _, kind := range []string{"agent", "broker", "writer"} {
			text += fmt.Sprintf("  - {at: %dms, kind: %s, for: %dms, until: 60ms}\n",
				rapid.IntRange(0, 200).Draw(t, "at"), kind,
				rapid.IntRange(0, 100).Draw(t, "for"))
		}
		c, err := Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		r, err := Simulate(c, []*times.File{s.file()})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, u := range r.Use {
			if !(u.Share >= 0) || u.Share > 1.001 {
				t.Fatalf("%s is used for %v of the time\n%s", u.Name, u.Share, text)
			}
		}
	})
}

// TestSimulateErrors: measurements that lack a stage are refused with its name.
func TestSimulateErrors(t *testing.T) {
	f := stageTimes{}.file()
	f.Series = f.Series[1:]
	_, err := Simulate(configured(t, "load: {rows: 1, window: 1}\n"+oneHost), []*times.File{f})
	if !errors.Is(err, times.ErrInvalid) || !strings.Contains(err.Error(), `no series "encode"`) {
		t.Errorf("Simulate without the stage encode: %v, want an ErrInvalid that names it", err)
	}
	m := &model{failed: ErrLost}
	l := &lane{m: m, writer: &writer{}, server: &server{}}
	m.clock = &station.Clock{}
	l.reads, l.answers = station.NewQueue(m.clock, 1), station.NewQueue(m.clock, 1)
	l.whole.Arrive(0)
	if err := l.audit(); !errors.Is(err, ErrLost) {
		t.Errorf("an entry that no writer waits for: %v, want ErrLost", err)
	}
	l.writer.made = 1
	if err := l.audit(); err != nil {
		t.Errorf("the same with a writer: %v, want no error", err)
	}
	l.server.unanswered = []*entry{{}}
	if err := l.audit(); !errors.Is(err, ErrLost) {
		t.Errorf("an entry that is nowhere in its server: %v, want ErrLost", err)
	}
}
