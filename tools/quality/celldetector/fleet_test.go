package celldetector_test

import (
	"cmp"
	"flag"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
)

// fleetEntities is the number of entities of TestFleet; make fleets has 1,000.
var (
	fleetEntities = flag.Int("fleet.entities", 0, "entities of a generated fleet; 0: a few")
	fleetSeed     = flag.Uint64("fleet.seed", 5001, "seed of the generated fleets; below 1,000 for choices")
	fleetHeldBack = flag.Bool("fleet.heldback", false, "whether fleets have families that are held back")
)

const (
	fleetDays  = 14
	fleetSlack = 30 // rows behind a window in which an incident belongs to it
)

func entities() int {
	if *fleetEntities > 0 {
		return *fleetEntities
	}
	return testkit.Of(200, 40)
}

// member is an entity of a fleet: a series with the outputs of the predictor.
type member struct {
	labelled.Series
	evaluation.CellOutcome
	rows int // of fleetDays
}

// members returns n entities with steps that are short enough, over the families that may be used.
// Quiet ones have no incident.
func members(t *testing.T, n int, quiet bool) []*member {
	t.Helper()
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	heldBack := map[string]bool{}
	var names []labelled.Pair
	for _, f := range labelled.Families() {
		heldBack[f.Name] = f.HeldBack
		if quiet {
			names = append(names, labelled.Pair{Family: f.Name})
		}
	}
	if !quiet {
		names = labelled.Pairs()
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	}
	names = slices.DeleteFunc(names, func(p labelled.Pair) bool { return heldBack[p.Family] && !*fleetHeldBack })
	all := make([]*member, 0, n)
	const together = 16
	for i := 0; len(all) < n && i < 8*(n+len(names)); i += together {
		made := make([]*member, together)
		var jobs sync.WaitGroup
		room := make(chan struct{}, runtime.GOMAXPROCS(0))
		for k := range made {
			jobs.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				made[k] = makeMember(t, d, names[(i+k)%len(names)], (i+k)/len(names))
			})
		}
		jobs.Wait()
		for _, m := range made {
			if m != nil && len(all) < n {
				all = append(all, m)
			}
		}
	}
	return all
}

// makeMember returns an entity; nil if its step is so long that it has few rows or late incidents.
func makeMember(t *testing.T, d *evaluation.CellDetector, p labelled.Pair, n int) *member {
	m := &member{}
	var err error
	if p.Incident == "" {
		m.Series, err = labelled.Quiet(*fleetSeed, p.Family, n)
	} else {
		m.Series, err = labelled.Make(*fleetSeed, p, n)
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	end := m.Times[0] + int64(fleetDays*24*time.Hour)
	m.rows, _ = slices.BinarySearch(m.Times, end)
	if m.rows < 3500 || len(m.Windows) > 0 && m.rows < len(m.Times)-40 {
		return nil
	}
	if m.CellOutcome, err = d.Run(m.Times, m.Flat(), m.Features()); err != nil {
		t.Error(err)
		return nil
	}
	return m
}

type outcome struct {
	opened, openedFalse, shown, shownFalse int
	windows, opens, shows                  int // windows, with an incident that was opened or shown
	byFamily                               map[string]int
	rows                                   int
}

func watch(all []*member, o explain.FleetLimits) outcome {
	type place struct{ entity, row int }
	var rows []place
	for e, m := range all {
		for row := range m.rows {
			rows = append(rows, place{e, row})
		}
	}
	slices.SortStableFunc(rows, func(a, b place) int {
		return cmp.Compare(all[a.entity].Times[a.row], all[b.entity].Times[b.row])
	})
	c, entities := explain.NewControl(o), make([]explain.FleetEntity, len(all))
	r := outcome{byFamily: map[string]int{}, rows: len(rows)}
	opens, shows := map[[2]int]bool{}, map[[2]int]bool{}
	for _, p := range rows {
		m := all[p.entity]
		window := slices.IndexFunc(m.Windows, func(w quality.Window) bool {
			return w.First <= p.row && p.row <= w.Last+fleetSlack
		})
		decision := m.Decisions[p.row]
		shown := c.Decide(&entities[p.entity], m.Times[p.row], m.Scores[p.row], decision)
		if decision == kernels.VoteAnomalous {
			r.opened++
			if window < 0 {
				r.openedFalse++
			} else {
				opens[[2]int{p.entity, window}] = true
			}
		}
		if shown == kernels.VoteAnomalous {
			r.shown++
			r.byFamily[m.Family]++
			if window < 0 {
				r.shownFalse++
			} else {
				shows[[2]int{p.entity, window}] = true
			}
		}
	}
	for _, m := range all {
		r.windows += len(m.Windows)
	}
	r.opens, r.shows = len(opens), len(shows)
	return r
}

// limits returns the limits of a fleet as a specification with the defaults of the predictor has
// them.
func limits(t *testing.T, q, perDay float64) explain.FleetLimits {
	t.Helper()
	s, err := swarm.Parse("fleet.yaml", []byte("name: fleet\nfleet: {false_discoveries: 0.1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.FleetLimits()
	if err != nil {
		t.Fatal(err)
	}
	l.FalseDiscoveries, l.AlarmsPerDay = q, perDay
	return explain.FleetLimits(*l)
}

// TestFleet: of the incidents that a fleet is shown, no more are false than was asked for, with the
// factor of 1.5 that rates have and what chance adds; and a fleet is shown as many in a day as were
// asked for.
func TestFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("fleets are slow under the race detector")
	}
	n := entities()
	quiet, sick := members(t, n, true), members(t, n/2, false)
	t.Logf("%d quiet entities, %d with incidents", len(quiet), len(sick))
	for _, share := range []float64{0, 0.01, 0.05, 0.2, 0.4} {
		with := min(int(share*float64(n)), len(sick))
		all := append(slices.Clone(sick[:with]), quiet[:min(n-with, len(quiet))]...)
		for _, o := range []explain.FleetLimits{
			limits(t, 0.05, 0), limits(t, 0.1, 0), limits(t, 0.2, 0), limits(t, 0, float64(n)/200),
		} {
			r := watch(all, o)
			t.Logf("%d entities, %d with incidents, share %.2f, %.1f a day: opened %d (%d false), shown %d (%d false, "+
				"%.1f %%), %.2f a day; windows %d, opened in %d, shown in %d", len(all), with, o.FalseDiscoveries,
				o.AlarmsPerDay, r.opened, r.openedFalse, r.shown, r.shownFalse,
				100*float64(r.shownFalse)/float64(max(r.shown, 1)), float64(r.shown)/fleetDays,
				r.windows, r.opens, r.shows)
			most := 1.5*o.FalseDiscoveries*float64(r.shown) + 3
			if chance := 2 * math.Sqrt(most); o.FalseDiscoveries > 0 && float64(r.shownFalse) > most+chance {
				t.Errorf("%d of %d incidents are false, want about %.1f", r.shownFalse, r.shown,
					o.FalseDiscoveries*float64(r.shown))
			}
			if o.AlarmsPerDay > 0 && float64(r.shown) > 1.5*o.AlarmsPerDay*fleetDays {
				t.Errorf("%d incidents are shown in %d days, want %v a day", r.shown, fleetDays, o.AlarmsPerDay)
			}
			if o.FalseDiscoveries == 0.1 && share == 0.4 && n >= 150 && 4*r.shows < r.opens {
				t.Errorf("incidents are shown in %d of %d windows: too few", r.shows, r.opens)
			}
		}
	}
}

// TestFleetFamilies reports how many false alarms the families of a quiet fleet have, with its
// number limited and without.
func TestFleetFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("fleets are slow under the race detector")
	}
	all := members(t, entities(), true)
	of := map[string]int{}
	for _, m := range all {
		of[m.Family]++
	}
	perDay := float64(len(all)) * 0.02
	free, limited := watch(all, limits(t, 0, 1e6)), watch(all, limits(t, 0, perDay))
	worst := 0.0
	for _, f := range labelled.Families() {
		if n := float64(of[f.Name]); n > 0 {
			days := n * fleetDays
			t.Logf("%-16s %3.0f entities, opened and shown %.3f a day and entity, limited %.3f", f.Name, n,
				float64(free.byFamily[f.Name])/days, float64(limited.byFamily[f.Name])/days)
			worst = max(worst, float64(limited.byFamily[f.Name])/days)
		}
	}
	t.Logf("all: %.3f and %.3f a day and entity, of 0.02; the most of a family %.3f",
		float64(free.shown)/float64(len(all)*fleetDays), float64(limited.shown)/float64(len(all)*fleetDays), worst)
	if limited.shown > int(1.5*perDay*fleetDays) {
		t.Errorf("%d incidents are shown, want %.0f", limited.shown, perDay*fleetDays)
	}
}

// TestFleetLine: the rates of incidents by surprise match the alarm setting of the predictor.
func TestFleetLine(t *testing.T) {
	for l := -0.5; l > -14; l -= 0.25 {
		rare := max(0, kernels.RateBend-l)
		nats := kernels.RateNats - kernels.RateSlope*l + kernels.RateRare*rare*rare
		if got := explain.Rarity(nats); math.Abs(got+l) > 1e-6 {
			t.Errorf("%v nats are of rarity %v, want %v", nats, got, -l)
		}
	}
}
