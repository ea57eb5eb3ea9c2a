package cells

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func mustBind(t *testing.T, cell string, values map[string]float64, agents, features int) *Bound {
	t.Helper()
	c, ok := Lookup(cell)
	if !ok {
		t.Fatalf("no cell %q among %v", cell, Names())
	}
	b, err := c.Bind(values, agents, features, Weighted)
	if err != nil {
		t.Fatalf("c.Bind: %v, want no error", err)
	}
	return b
}

// TestFalseAlarmRate: half of the false alarms take a higher alarm, and the rate outweighs alarm
// and suspect. Without the rate, both follow from the scores.
func TestFalseAlarmRate(t *testing.T) {
	levels := func(values map[string]float64) (alarm, suspect float64) {
		w := mustBind(t, "predictor", values, 4, 1).ParamBlock()
		return float64(math.Float32frombits(w[kernels.PredictorAlarm])),
			float64(math.Float32frombits(w[kernels.PredictorSuspect]))
	}
	if alarm, suspect := levels(map[string]float64{"alarm": 0.5, "suspect": 0.2}); alarm != 4 || suspect != 1 {
		t.Errorf("alarm %v and suspect %v nats, want 4 and 1", alarm, suspect)
	}
	often, _ := levels(map[string]float64{"false_alarm_rate": 0.001, "alarm": 0.9})
	rare, suspect := levels(map[string]float64{"false_alarm_rate": 0.0005, "alarm": 0.9})
	// 0.77 - 0.52 ln(0.001 * 64) nats
	if math.Abs(often-2.199) > 1e-3 || math.Abs(rare-often-0.52*math.Ln2) > 1e-5 || suspect >= rare {
		t.Errorf("alarms of %v and %v nats, suspect %v", often, rare, suspect)
	}
}

// TestAlarmsPerDay: entities share the alarms of a day, and only a cell that counts them keeps the
// time of the first observation.
func TestAlarmsPerDay(t *testing.T) {
	features := 2 // with relations, so that all variables are there
	perSecond := func(values map[string]float64) (float64, []kernels.Var) {
		b := mustBind(t, "predictor", values, 4, features)
		l, err := b.Layout(1 << 20)
		if err != nil {
			t.Fatalf("b.Layout: %v, want no error", err)
		}
		return float64(math.Float32frombits(b.ParamBlock()[kernels.PredictorPerSecond])), l.Vars
	}
	none, before := perSecond(nil)
	one, vars := perSecond(map[string]float64{"alarms_per_day": 86400, "block": 10})
	of, _ := perSecond(map[string]float64{"alarms_per_day": 86400, "block": 10, "entities": 4})
	if none != 0 || one != 10 || of != 2.5 {
		t.Errorf("%v, %v and %v false alarms a second and observation of a block, want 0, 10 and 2.5", none, one, of)
	}
	if len(vars) != len(before)+1 || vars[kernels.PredictorVarSince] != kernels.PredictorSince {
		t.Errorf("the state has %d variables, and %d without alarms_per_day", len(vars), len(before))
	}
	features = 1
	if _, vars = perSecond(map[string]float64{"alarms_per_day": 1}); vars[len(vars)-1] != kernels.PredictorSince {
		t.Errorf("the last variable of one feature is %v, want %v", vars[len(vars)-1], kernels.PredictorSince)
	}
}

// TestRelations: swarms of 2 to 32 features keep relations, unless they are off. All other swarms
// have the state of features alone.
func TestRelations(t *testing.T) {
	for _, c := range []struct {
		features, off, related int
	}{{1, 0, 0}, {2, 0, 2}, {2, 1, 0}, {32, 0, 32}, {33, 0, 0}, {64, 0, 0}} {
		b := mustBind(t, "predictor", map[string]float64{"relations": float64(1 - c.off)}, 4, c.features)
		if got := int(b.ParamBlock()[kernels.PredictorRelations]); got != c.related {
			t.Errorf("%+v: %d features are related", c, got)
		}
		l, err := b.Layout(1 << 20)
		if err != nil {
			t.Fatalf("b.Layout: %v, want no error", err)
		}
		views := c.features + c.related
		level, has := l.Vars[kernels.PredictorVarLevel].Width, len(l.Vars) > kernels.PredictorVarMiss
		if level != views || has != (c.related > 0) {
			t.Errorf("%+v: the level has %d views, want %d; relations are kept: %v", c, level, views, has)
		}
		if got, want := len(b.Weights(1)), 4*kernels.PredictorWeights(views); got != want {
			t.Errorf("%+v: %d weights, want %d", c, got, want)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	cases := []struct {
		values           map[string]float64
		agents, features int
		voting           Voting
		want             string
	}{
		{map[string]float64{"lern": 0.1}, 8, 1, Weighted, `no parameter "lern", did you mean "learn"?`},
		{map[string]float64{"learn": 2}, 8, 1, Weighted, "learn = 2, want 0 to 1"},
		{map[string]float64{"learn": math.NaN()}, 8, 1, Weighted, "learn = NaN, want 0 to 1"},
		{map[string]float64{"warmup": 100.5}, 8, 1, Weighted, "warmup = 100.5, want a whole number"},
		{nil, 0, 1, Weighted, "0 agents a group, want 1 to 65536"},
		{nil, 8, 65, Weighted, "65 features, want 1 to 64"},
		{nil, 8, 1, Voting{Rule: kernels.RuleQuorum, Quorum: 1.5}, "quorum 1.5, want above 0 and at most 1"},
		{nil, 8, 1, Voting{Rule: 9}, "no voting rule 9"},
	}
	for _, c := range cases {
		_, err := predictor.Bind(c.values, c.agents, c.features, c.voting)
		if !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Bind(%v, %d, %d, %v): %v, want %q", c.values, c.agents, c.features, c.voting, err, c.want)
		}
	}
	_, err := predictor.Bind(map[string]float64{"lern": 1, "alarm": 7}, -1, 1, Weighted)
	for _, part := range []string{"lern", "alarm", "-1 agents"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("several faults: %v does not name %s", err, part)
		}
	}
}

// TestDescriptions holds every cell to its own words: defaults inside the ranges, blocks and tables
// of the stated sizes.
func TestDescriptions(t *testing.T) {
	words := map[string]int{
		"predictor": kernels.PredictorWords, "leaky": kernels.LeakyWords, "lif": kernels.LifWords,
		"gru": kernels.GruWords, "region": kernels.RegionWords,
	}
	weights := map[string]func(features, agents int) int{
		"predictor": func(features, agents int) int {
			if features > 1 {
				features *= 2 // and residuals
			}
			return kernels.PredictorWeights(features) * agents
		},
		"leaky":  func(features, agents int) int { return kernels.LeakyWeights(features) * agents },
		"lif":    func(features, agents int) int { return kernels.LifWeights(features) * agents },
		"region": func(_, agents int) int { return kernels.RegionWeights * agents },
		"gru": func(features, agents int) int {
			return kernels.GruShared(8) +
				kernels.GruWeights(features, agents)
		},
	}
	for _, name := range Names() {
		c, _ := Lookup(name)
		seen := map[string]bool{}
		for _, p := range c.Params {
			if seen[p.Name] || p.Doc == "" || p.Default < p.Min || p.Default > p.Max {
				t.Errorf("%s: parameter %+v is a duplicate, undocumented or out of its own range", name, p)
			}
			seen[p.Name] = true
		}
		for _, features := range []int{1, 5} {
			b := mustBind(t, name, nil, 7, features)
			if got := len(b.ParamBlock()); got != words[name] {
				t.Errorf("%s: block of %d words, want %d", name, got, words[name])
			}
			if got, want := len(b.Weights(1)), weights[name](features, 7); got != want {
				t.Errorf("%s: %d weights, want %d", name, got, want)
			}
			if _, err := b.Layout(1 << 20); err != nil {
				t.Errorf("%s: b.Layout: %v, want no error", name, err)
			}
			if agent, _ := b.StateBytes(); agent > 256 {
				t.Errorf("%s: %d bytes an agent, want 256 at most", name, agent)
			}
		}
	}
}

// TestWeightsAreTheAgents: an agent's weights depend on the seed and its index, not on how many
// agents there are.
func TestWeightsAreTheAgents(t *testing.T) {
	few, many := mustBind(t, "predictor", nil, 3, 2), mustBind(t, "predictor", nil, 300, 2)
	a, b := few.Weights(77), many.Weights(77)
	for c := range kernels.PredictorWeights(4) {
		if !slices.Equal(a[c*3:][:3], b[c*300:][:3]) {
			t.Fatalf("component %d differs between groups of 3 and of 300", c)
		}
	}
	if slices.Equal(a, few.Weights(78)) {
		t.Error("two seeds give one table")
	}
	for c := kernels.PredictorLeak; c < kernels.PredictorProject; c++ {
		for i, v := range b[c*300:][:300] {
			if !(v > 0 && v <= 1) {
				t.Fatalf("rate %d of agent %d is %v, want within (0, 1]", c, i, v)
			}
		}
	}
}

func TestOctaves(t *testing.T) {
	for _, c := range []struct{ low, high float64 }{{1, 20}, {3, 30}, {5, 5}, {5, 500}} {
		if got := octaves(c.low, span(c.low, c.high)); math.Abs(got-c.high) > 1e-9*c.high {
			t.Errorf("from %v, %v octaves are %v, want %v", c.low, span(c.low, c.high), got, c.high)
		}
	}
}
