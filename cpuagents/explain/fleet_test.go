package explain

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// options returns the limits for a predictor with its defaults.
func options(q, perDay float64) FleetLimits {
	return FleetLimits{
		FalseDiscoveries: q, AlarmsPerDay: perDay, Window: 28 * 24 * time.Hour, Alarm: scoreHalf * 0.39 / 0.61,
		Block: 64,
	}
}

// row is a row of an entity.
type row struct {
	entity   int
	ns       int64
	score    float32
	decision uint32
}

const (
	hour = int64(time.Hour)
	step = 5 * int64(time.Minute)
)

// rowsOf returns rows of entities in the order of time, with false incidents, which are short, and
// with a share of entities that have true ones.
func rowsOf(seed uint64, entities, n int, sick float64) (all []row) {
	r := rand.New(rand.NewPCG(seed, 1))
	type state struct {
		left   int
		height float64
	}
	alarm := options(0, 0).Alarm
	now := make([]state, entities)
	for i := range n {
		for e := range entities {
			s, decision, nats := &now[e], uint32(normal), 1.5*r.Float64()
			switch {
			case s.left > 0:
				s.left--
				decision, nats = suspicious, 1+s.height*r.Float64()
				if r.IntN(40) == 0 {
					decision = ^uint32(0) // no decision
				}
			case r.IntN(1900) == 0:
				decision, s.left, s.height = anomalous, r.IntN(8), 2+r.ExpFloat64()/3
				nats = alarm + 0.4*r.ExpFloat64()
			case float64(e) < sick*float64(entities) && i > n/3 && r.IntN(2000) == 0:
				decision, s.left, s.height = anomalous, 20+r.IntN(60), 6
				nats = alarm + 4*r.Float64()
			}
			x := nats / (nats + scoreHalf)
			if decision != anomalous {
				x *= quietPart * alarm / (alarm + scoreHalf)
			}
			all = append(all, row{e, int64(i)*step - 30*hour, float32(x), decision})
		}
	}
	return all
}

// decide returns the decisions of rows by entity.
func decide(c *Control, entities int, all []row) [][]uint32 {
	out, es := make([][]uint32, entities), make([]FleetEntity, entities)
	for _, r := range all {
		out[r.entity] = append(out[r.entity], c.Decide(&es[r.entity], r.ns, r.score, r.decision))
	}
	return out
}

func count(all [][]uint32, of uint32) (n int) {
	for _, d := range all {
		for _, v := range d {
			if v == of {
				n++
			}
		}
	}
	return n
}

// TestOrder: the order in which entities come changes no decision, if the rows of each entity keep
// their order and nothing comes a slot late: so shards and batches change none.
func TestOrder(t *testing.T) {
	testkit.Checks(t, 20)
	const entities = 30
	all := rowsOf(7, entities, 2000, 0.6)
	for _, o := range []FleetLimits{options(0.2, 0), options(0, 3), options(0.5, 5)} {
		want := decide(NewControl(o), entities, all)
		shown, of := count(want, anomalous), 0
		for _, r := range all {
			if r.decision == anomalous {
				of++
			}
		}
		if shown < 10 || shown > of/2 {
			t.Fatalf("%+v: %d of %d incidents are shown: the test shows nothing", o, shown, of)
		}
		rapid.Check(t, func(rt *rapid.T) {
			// Each shard is late by its own time, of less than a slot.
			shards := rapid.IntRange(1, 7).Draw(rt, "shards")
			late := make([]int64, shards)
			for i := range late {
				late[i] = rapid.Int64Range(0, hour-1).Draw(rt, "late")
			}
			mixed := slices.Clone(all)
			slices.SortStableFunc(mixed, func(a, b row) int {
				return cmp.Compare(a.ns+late[a.entity%shards], b.ns+late[b.entity%shards])
			})
			if got := decide(NewControl(o), entities, mixed); !reflect.DeepEqual(got, want) {
				rt.Fatalf("%+v: other decisions in another order", o)
			}
		})
	}
}

// restored returns a control and its entities after their state was encoded and decoded.
func restored(t *testing.T, o FleetLimits, c *Control, es []FleetEntity) (*Control, []FleetEntity) {
	t.Helper()
	type state struct {
		State    ControlState
		Entities []FleetEntity
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&state{c.State(), es}); err != nil {
		t.Fatal(err)
	}
	var got state
	if err := gob.NewDecoder(&b).Decode(&got); err != nil {
		t.Fatal(err)
	}
	again := NewControl(o)
	again.Restore(got.State)
	return again, got.Entities
}

// TestState: a control that is restored from bytes decides as one that was never stopped.
func TestState(t *testing.T) {
	const entities = 40
	all := rowsOf(3, entities, 2500, 0.3)
	want := decide(NewControl(options(0.2, 0)), entities, all)
	c, es := NewControl(options(0.2, 0)), make([]FleetEntity, entities)
	got := make([][]uint32, entities)
	for i, r := range all {
		if i%7001 == 7000 {
			c, es = restored(t, options(0.2, 0), c, es)
		}
		got[r.entity] = append(got[r.entity], c.Decide(&es[r.entity], r.ns, r.score, r.decision))
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("other decisions after State and Restore")
	}
}

// slow decides as the documentation reads. It keeps each event, and counts them again each time.
type slow struct {
	o      FleetLimits
	scale  scale
	events []event
}

type event struct {
	slot  int64
	row   bool
	level int // that an incident has reached
	shown bool
}

func (c *slow) decide(e *FleetEntity, ns int64, score float32, decision uint32) uint32 {
	slot := int64(math.Floor(float64(ns) / (float64(c.o.Window) / 672)))
	c.events = append(c.events, event{slot: slot, row: true})
	e.Rows++
	if decision == 0 || decision == 2 {
		e.end()
	}
	if decision == 2 {
		e.begin()
	}
	if !e.Open || decision > 2 || decision == 0 {
		return decision
	}
	height := e.rise(&c.scale, score)
	level := c.scale.level(e, height)
	before := e.Level
	for ; e.Level < level; e.Level++ {
		c.events = append(c.events, event{slot: slot, level: int(e.Level) + 1})
	}
	if level <= before || e.Shown || int(level) <= c.threshold(slot) {
		return 1
	}
	e.Shown = true
	c.events = append(c.events, event{slot: slot, shown: true})
	return 2
}

func (c *slow) threshold(slot int64) int {
	first, rows, shown, above := slot, 0, 0, make([]int, Levels)
	for _, e := range c.events {
		first = min(first, e.slot)
		if e.slot > slot-2 || e.slot <= slot-2-672 {
			continue
		}
		switch {
		case e.row:
			rows++
		case e.shown:
			shown++
		default:
			above[e.level-1]++
		}
	}
	days := float64(min(slot-2-first+1, 672)) / 672 * c.o.Window.Hours() / 24
	for l := range above {
		fits := rows > 0
		if c.o.FalseDiscoveries > 0 {
			expected := float64(rows) / float64(c.o.Block) * c.scale.rate[l]
			fits = fits && expected <= c.o.FalseDiscoveries*float64(above[l]+1)
		}
		if c.o.AlarmsPerDay > 0 {
			fits = fits && float64(max(above[l], shown)+1) <= c.o.AlarmsPerDay*days
		}
		if fits {
			return l
		}
	}
	return Levels
}

// TestSlow: the control decides as its slow twin does.
func TestSlow(t *testing.T) {
	const entities = 12
	for seed := range uint64(3) {
		all := rowsOf(seed, entities, 1500, 0.6)
		for _, o := range []FleetLimits{options(0.3, 0), options(0, 2), options(0.5, 4)} {
			o.Window = 100 * time.Hour // its slots are no whole number of steps
			want, es := make([][]uint32, entities), make([]FleetEntity, entities)
			s := &slow{o: o, scale: newScale(o)}
			for _, r := range all {
				want[r.entity] = append(want[r.entity], s.decide(&es[r.entity], r.ns, r.score, r.decision))
			}
			if got := decide(NewControl(o), entities, all); !reflect.DeepEqual(got, want) {
				t.Errorf("seed %d, %+v: other decisions than the slow twin", seed, o)
			}
			if count(want, anomalous) == 0 {
				t.Errorf("seed %d, %+v: no incident is shown: the test shows nothing", seed, o)
			}
		}
	}
}

// TestAlarmsPerDay: no more incidents are shown than the days allow, and what two slots add.
func TestAlarmsPerDay(t *testing.T) {
	const entities, most = 100, 2.0
	all := rowsOf(11, entities, 8000, 0)
	c := NewControl(options(0, most))
	es := make([]FleetEntity, entities)
	shown, of := 0, 0
	for _, r := range all {
		if r.decision == anomalous {
			of++
		}
		if c.Decide(&es[r.entity], r.ns, r.score, r.decision) == anomalous {
			shown++
		}
		if days := float64(r.ns-all[0].ns)/float64(24*hour) + 1; float64(shown) > most*days+4 {
			t.Fatalf("%d incidents are shown in %.1f days, want at most %v a day", shown, days, most)
		}
	}
	days := float64(all[len(all)-1].ns-all[0].ns) / float64(24*hour)
	if float64(shown) < most*days/2 || of < 3*shown {
		t.Errorf("%d of %d incidents are shown in %.0f days: too few", shown, of, days)
	}
}

// TestOldRows: rows of any time and score change nothing outside of their slots, and fail nothing.
func TestOldRows(t *testing.T) {
	c, e := NewControl(options(0.1, 1)), FleetEntity{}
	for _, ns := range []int64{math.MinInt64, 0, -1, math.MaxInt64, 5} {
		for _, x := range []float32{0, 0.3, 1, float32(math.NaN()), float32(math.Inf(1)), -1} {
			for d := range uint32(4) {
				if got := c.Decide(&e, ns, x, d); got > 3 {
					t.Errorf("decision %d", got)
				}
			}
		}
	}
	for n := range int64(mostSlots + 100) {
		c.Decide(&e, n*hour, 0, normal)
	}
	if len(c.state.Slots) > mostSlots || c.slot(3) != nil {
		t.Errorf("%d slots are kept, at most %d wanted", len(c.state.Slots), mostSlots)
	}
}

// TestScale: surprises follow from scores, levels rise with heights, and an entity that had many
// incidents needs a greater height.
func TestScale(t *testing.T) {
	s := newScale(options(0, 0))
	for nats := 0.1; nats < 40; nats *= 1.1 {
		loud := float32(nats / (nats + scoreHalf))
		quiet := float32(quietPart*s.alarm/(s.alarm+scoreHalf)) * loud
		if loud > float32(s.quiet) {
			if got := s.nats(loud); math.Abs(got-nats) > 1e-4*nats {
				t.Errorf("score %v: %v nats, want %v", loud, got, nats)
			}
		}
		if got := s.nats(quiet); math.Abs(got-nats) > 1e-4*nats {
			t.Errorf("quiet score %v: %v nats, want %v", quiet, got, nats)
		}
	}
	old := FleetEntity{Rows: 20000, Incidents: 10, Below: 9, Heights: 8 * heightUnit}
	often := FleetEntity{Rows: 20000, Incidents: 40, Below: 25, Heights: 60 * heightUnit}
	young := FleetEntity{Rows: 300}
	for h := 0.0; h < 12; h += 0.1 {
		if s.level(&old, h+0.1) < s.level(&old, h) || s.level(&often, h) > s.level(&old, h) ||
			s.level(&young, h) > s.level(&old, h) {
			t.Errorf("height %v: levels %d, %d, %d", h, s.level(&old, h), s.level(&often, h), s.level(&young, h))
		}
	}
	if s.level(&young, 12) >= s.level(&old, 12) {
		t.Error("a young entity is trusted as an old one")
	}
	for l := 1; l < Levels; l++ {
		if s.rate[l] >= s.rate[l-1] || s.rate[l] <= 0 {
			t.Errorf("level %d has rate %v, the one below %v", l, s.rate[l], s.rate[l-1])
		}
	}
}

// TestFunctions: ln and exp equal the library's, except for the last digits.
func TestFunctions(t *testing.T) {
	for x := 1e-9; x < 1e12; x *= 1.037 {
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 1e-13*max(1, math.Abs(want)) {
			t.Errorf("ln(%v) = %v, want %v", x, got, want)
		}
	}
	for x := 0.0; x > -100; x -= 0.37 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-12*want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if !slices.Equal(
		[]int64{NewControl(options(0, 0)).number(-1), NewControl(options(0, 0)).number(0)},
		[]int64{-1, 0},
	) {
		t.Error("slots before 1970 are cut to zero")
	}
}

// TestCheck: options that are out of bounds are refused.
func TestCheck(t *testing.T) {
	good := options(0.5, 1e6)
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for i, change := range []func(o *FleetLimits){
		func(o *FleetLimits) { o.FalseDiscoveries = math.NaN() }, func(o *FleetLimits) { o.FalseDiscoveries = 0.6 },
		func(o *FleetLimits) { o.AlarmsPerDay = -1 }, func(o *FleetLimits) { o.Window = time.Minute },
		func(o *FleetLimits) { o.Alarm = 0 }, func(o *FleetLimits) { o.Block = 0 },
		func(o *FleetLimits) { o.Block = 1 << 20 },
	} {
		o := options(0.1, 1)
		change(&o)
		if err := o.Check(); !errors.Is(err, ErrLimits) {
			t.Errorf("change %d: %v, want ErrOptions", i, err)
		}
	}
}
