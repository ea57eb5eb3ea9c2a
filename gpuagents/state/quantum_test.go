package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestQuantumVotes: a vote measures, each round anew; a replay without the questions that may be
// left out, and of one shard of several, has the same pages; and elected leaders vote for the
// winner.
func TestQuantumVotes(t *testing.T) {
	for _, shards := range []int{1, 3} {
		d := openNamed(t, *opentest.Name)
		spec, err := swarm.Parse("test.yaml", []byte(quantumText(
			fmt.Sprintf("agents: 3000\nagents_per_group: 10\npage_size: 64KiB\nshards: %d\n", shards))))
		testkit.NoError(t, "swarm.Parse", err)
		open := func() *Snapshotter {
			s := openShard(t, d, nil, nil, spec, spec.Groups(), shards-1, nil)
			testkit.NoError(t, "Open", errors.Join(s.Memory().Open(t.Context(), nil), s.Reset(t.Context())))
			return s
		}
		s, replayed := open(), open()
		var log []swarms.Entry
		var answers []Answer
		apply := func(kind, data string) Answer {
			e := swarms.Entry{Kind: kind, Seq: uint64(len(log) + 1), Data: []byte(data)}
			a, err := s.Apply(t.Context(), e)
			testkit.NoError(t, kind, err)
			log, answers = append(log, e), append(answers, a)
			return a
		}
		apply(swarms.EntryTick, `{"v":1,"count":3}`)
		apply(swarms.EntryVote, `{"v":1,"round":4}`)
		apply(swarms.EntryVote, `{"v":1,"round":7}`)
		apply(swarms.EntryTick, `{"v":1,"count":1}`)
		apply(swarms.EntryQuery, `{"v":1,"groups":[299]}`)
		last := apply(swarms.EntryVote, `{"v":1,"round":9,"priority":"elected"}`)
		if v := last.Voted; shards == 1 && (v.Winner == nil || v.Leader == nil) {
			t.Errorf("an elected round has %+v, want a winner and a leader", v)
		}
		counts := func(a Answer) (of []uint64) {
			var v swarms.Voted
			testkit.NoError(t, "json.Unmarshal", json.Unmarshal(a.Data, &v))
			return v.Counts
		}
		if fmt.Sprint(counts(answers[1])) == fmt.Sprint(counts(answers[2])) {
			t.Errorf("two rounds have the counts %v: a vote does not measure", counts(answers[1]))
		}
		for i, e := range log {
			if replayed.Rounds().Skip(e) {
				if e.Kind == swarms.EntryVote {
					t.Errorf("a replay leaves out vote %d, which changes ballots", i)
				}
				continue
			}
			a, err := replayed.Apply(t.Context(), e)
			testkit.NoError(t, e.Kind, err)
			if !bytes.Equal(a.Data, answers[i].Data) {
				t.Errorf("entry %d, a %s, is answered with %s, want %s", i, e.Kind, a.Data, answers[i].Data)
			}
		}
		pair{s, replayed}.check(t)
		before := s.Rounds().Last()
		_, err = s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"round":9}`)})
		if !errors.As(err, new(*jobs.Error)) || s.Rounds().Last() != before {
			t.Errorf("a round that is over: %v, want a refusal", err)
		}
		pair{s, replayed}.check(t)
		_, err = s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryFuse, Data: []byte(`{"v":1,"by":"all"}`)})
		if err == nil || !strings.Contains(err.Error(), "have no embedding") {
			t.Errorf("a fusion: %v, want a refusal", err)
		}
	}
}

// storeAngles stores angles as a model.
func storeAngles(t testing.TB, store snapshot.Store, name string, angles ...float32) swarms.ModelRef {
	t.Helper()
	var b bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&b, []safetensors.Values{
		{Name: "angles", Shape: []int64{int64(len(angles))}, Of: angles},
	}))
	_, digest, err := model.Save(t.Context(), store, name, b.Bytes())
	testkit.NoError(t, "model.Save", err)
	return swarms.ModelRef{Name: name, SHA256: digest}
}

// TestQuantumAngles: a swarm whose angles are of a model answers as one that adopts the model, and
// as one with these parameters. Another number of angles is refused.
func TestQuantumAngles(t *testing.T) {
	store := openStore(t)
	one, wrong := storeAngles(t, store, "one", 1.5), storeAngles(t, store, "wrong", 1, 2)
	text := quantumText("agents: 3000\nagents_per_group: 10\n")
	begun := strings.Replace(text, "{kind: quantum,", fmt.Sprintf("{kind: quantum, model: one, model_sha256: %s,",
		one.SHA256), 1)
	written := strings.Replace(text, "{t: 0.7}", "{t: 1.5}", 1)
	var answers [][]Answer
	for i, text := range []string{begun, text, written, text} {
		k := equipped(t, nil, store, text)
		if i == 1 {
			if _, err := k.Apply(t.Context(), adoption(t, one)); err != nil {
				t.Fatalf("adoption: %v", err)
			}
		}
		if i == 3 {
			_, err := k.Apply(t.Context(), adoption(t, wrong))
			if err == nil || !strings.Contains(err.Error(), "angles is of F32 [2], and the cell takes F32 [1]") {
				t.Errorf("adoption of two angles: %v, want a refusal", err)
			}
		}
		answers = append(answers, applyAll(t, k, entriesFor(k, rand.New(rand.NewPCG(3, 3)), 3)))
	}
	for i := range 3 {
		if d := diff(answers[0], answers[i]); d != "" {
			t.Errorf("swarm %d: %s", i, d)
		}
	}
	if diff(answers[0], answers[3]) == "" {
		t.Error("other angles have the same answers")
	}
}
