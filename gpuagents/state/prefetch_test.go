package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestPrefetch applies observations of agents in order to a swarm whose pages are in a store: pages
// come before they are asked for, and metrics say how many. Answers, pages and marks equal a swarm
// with a frame for each page, and a swarm without prefetch.
func TestPrefetch(t *testing.T) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			text := strings.Replace(pagedTexts["leaky"], "agents: 2000", "agents: 20000", 1)
			d, store := openNamed(t, *opentest.Name), newDisk().open(t)
			room := pages.NewBudget(8*testPage, 1<<20).WithPrefetch(on)
			p := pair{openPaged(t, d, room, text), openPaged(t, d, nil, text)}
			ok := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%v, want no error", err)
				}
			}
			ctx := t.Context()
			m := p.paged.Memory()
			counts := pages.NewMetrics()
			m.SetMetrics(counts)
			reg := prometheus.NewRegistry()
			reg.MustRegister(counts)
			ok(m.Open(ctx, store))
			agents := p.paged.(*agentState).agents
			perPage := agents.Layout().Slots * agents.Layout().Agents
			observe := func(page int) swarms.Entry {
				o := &batch.AgentObservations{Width: 1}
				for i := range 3 {
					o.Agent, o.Features = append(o.Agent, uint32(page*perPage+i)), append(o.Features, float32(page+i)/8)
				}
				data, err := o.Encode()
				ok(err)
				return swarms.Entry{Kind: swarms.EntryObserve, Data: data}
			}
			for page := range m.Made() {
				p.apply(t, observe(page))
			}
			ok(m.Checkpoint(ctx, nil))
			ok(m.Open(ctx, store)) // nothing is in memory
			clear(p.whole.Memory().Dirty())
			guessed := func() (n uint64) { // beside them pages that are hot change places
				for _, moves := range m.Pager().Stats().Migrations {
					if moves.Reason == "run" || moves.Reason == "correlation" {
						n += moves.Pages
					}
				}
				return n
			}
			const run = 8 // pages that prove it
			for page := range run {
				p.apply(t, observe(page))
			}
			if on {
				within, cancel := context.WithTimeout(ctx, 2*time.Minute)
				defer cancel()
				for guessed() == 0 {
					select {
					case <-time.After(time.Millisecond):
					case <-within.Done():
						t.Fatal("no page comes before it is asked for")
					}
				}
			}
			for page := run; page < len(m.Made()); page++ {
				p.apply(t, observe(page))
			}
			p.check(t)
			used := uint64(0)
			for _, tier := range m.Pager().Stats().Memory {
				used += tier.Used
			}
			if on != (guessed() > 0) || on && used == 0 {
				t.Errorf("prefetch %v: %d pages were guessed, %d used", on, guessed(), used)
			}
			ok(errors.Join(p.paged.Close(), p.whole.Close(), store.Close()))
			families, err := reg.Gather()
			ok(err)
			said := map[string]float64{}
			for _, f := range families {
				for _, series := range f.GetMetric() {
					said[f.GetName()] += series.GetCounter().GetValue()
				}
			}
			came := said["exoswarm_swarm_prefetch_pages_total"]
			if n, ok := said["exoswarm_swarm_prefetch_used_total"]; !ok || n != float64(used) {
				t.Errorf("metrics say %v of %d pages used", n, used)
			}
			if n, ok := said["exoswarm_swarm_prefetch_wasted_total"]; !ok || n+float64(used) > came {
				t.Errorf("metrics say %v of %v pages wasted", n, came)
			}
		})
	}
}
