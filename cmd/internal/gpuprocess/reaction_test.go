package gpuprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/emissions"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// cutOff emits, and loses its process between an emission and the answer, once for each emission.
type cutOff struct {
	shard.Emissions
	mu   sync.Mutex
	seen map[string]int
}

var errCutOff = errors.New("the process is cut off behind an emission")

func (c *cutOff) Emit(ctx context.Context, key string, e swarms.Emission) error {
	if err := c.Emissions.Emit(ctx, key, e); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := fmt.Sprint(e.Entry, e.Rule, e.Name)
	if c.seen[of]++; c.seen[of] == 1 {
		return errCutOff
	}
	return nil
}

// TestReactsOnce: the answers and the emissions of a swarm with rules are the same when one agent
// serves it, when each emission is first followed by no answer, so that its vote is applied again, and
// when several agents serve it one after another, with checkpoints and without.
func TestReactsOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(25, 9))
	var all []swarms.Entry
	add := func(kind string, data []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("encode a %s: %v", kind, err)
		}
		all = append(all, swarms.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: data})
	}
	for range 3 {
		data, err := inputs(r).Encode()
		add(swarms.EntryObserve, data, err)
		data, err = json.Marshal(swarms.Vote{Version: jobs.Version, Priority: swarms.PrioritySeeded})
		add(swarms.EntryVote, data, err)
		data, err = json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{0, 1, 17, 500, 899}})
		add(swarms.EntryQuery, data, err)
	}
	serve := func(keep, cut bool, each int) (said []string) {
		rig, dir := newRig(t), t.TempDir()
		rig.logs(t, "x", nil)
		rig.put(t, "x", "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\npage_size: 64KiB\n"+
			"features: [a, b]\nhear: [decision]\ncell: {kind: gru, params: {hidden: 5}}\n"+
			"vote: {candidates: [a, b, c]}\ncheckpoint: {interval: 1h, entries: 2}\n"+
			"on_decision:\n- any -> tick 2, emit all\n- a -> reset, emit a\n- changed -> emit news\n")
		emit := shard.Emissions(rig.conn.Emissions)
		lost := &cutOff{Emissions: emit, seen: map[string]int{}}
		if cut {
			emit = lost
		}
		for from := 0; from < len(all); from += each {
			o := gpuagents.Options{Emissions: emit}
			if keep {
				o.Checkpoints = checkpointsIn(filepath.Join(dir, "kept"))
			}
			a := rig.start(t, o)
			for i := from; i < min(from+each, len(all)); i++ {
				answer := rig.told(t, "x", i+1, all[i])
				said = append(said, answer.Kind+" "+string(answer.Data))
			}
			a.Stop()
		}
		if err := rig.conn.Emissions.List(t.Context(), "x", "", 0, func(e emissions.Stored) bool {
			e.Time, e.Identity = time.Time{}, ""
			data, err := json.Marshal(e) // as text, an emission has the address of its leader
			if err != nil {
				t.Error(err)
			}
			said = append(said, string(data))
			return true
		}); err != nil {
			t.Errorf("List: %v", err)
		}
		return said
	}
	want := serve(false, false, len(all))
	if len(want) < len(all)+4 {
		t.Errorf("%d answers and emissions to %d entries: %q", len(want), len(all), want)
	}
	for name, got := range map[string][]string{
		"cut off":                   serve(false, true, len(all)),
		"cut off, with checkpoints": serve(true, true, len(all)),
		"several agents":            serve(false, false, 4),
		"several, with checkpoints": serve(true, true, 4),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, want)
		}
	}
}

// TestEmitsNowhere: an agent without a stream refuses a swarm that emits, with the cure.
func TestEmitsNowhere(t *testing.T) {
	t.Parallel()
	rig := newRig(t)
	rig.logs(t, "x", nil)
	rig.put(t, "x", "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\nvote: {candidates: [a, b]}\n"+
		"on_decision: [any -> emit all]\n")
	a := rig.start(t, gpuagents.Options{})
	defer a.Stop()
	rig.logged(t, "has no stream for them: leave emit out of on_decision")
}
