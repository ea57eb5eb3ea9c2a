package state

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const askingText = "name: x\naddressed: agent\nagents: 3300\nagents_per_group: 33\npage_size: 64KiB\n" +
	"features: [row]\nseed: 3\ncell: {kind: gru, params: {hidden: 5}, embed: {rows: 9, width: 2}, items: 4}\n" +
	"vote: {candidates: [below, above], rule: majority}\n"

// storeItems stores random weights for askingText as a model.
func storeItems(t testing.TB, store snapshot.Store, name string, seed uint64, rows, items int64) swarms.ModelRef {
	t.Helper()
	return storeRandom(t, store, name, seed, []safetensors.Values{
		{Name: "embed.weight", Shape: []int64{rows, 2}},
		{Name: "weight_ih", Shape: []int64{15, 2}},
		{Name: "weight_hh", Shape: []int64{15, 5}},
		{Name: "bias_ih", Shape: []int64{15}},
		{Name: "bias_hh", Shape: []int64{15}},
		{Name: "readout.weight", Shape: []int64{items, 5}},
		{Name: "readout.bias", Shape: []int64{items}},
	})
}

// TestItems: a swarm with a model and a swarm of random weights that has adopted it answer alike, a
// swarm that is replayed answers as the first time, and a model of other items or rows is refused.
func TestItems(t *testing.T) {
	store := openStore(t)
	one, two := storeItems(t, store, "one", 1, 9, 4), storeItems(t, store, "two", 2, 9, 4)
	text := strings.Replace(askingText, "{kind: gru,", fmt.Sprintf("{kind: gru, model: one, model_sha256: %s,",
		one.SHA256), 1)
	k, random := equipped(t, nil, store, text), equipped(t, nil, store, askingText)
	if _, err := random.Apply(t.Context(), adoption(t, one)); err != nil {
		t.Fatalf("adoption: %v, want no error", err)
	}
	entries := entriesFor(k, rand.New(rand.NewPCG(3, 3)), 3)
	entries = append(entries, adoption(t, two))
	entries = append(entries, entriesFor(k, rand.New(rand.NewPCG(4, 4)), 3)...)
	want := applyAll(t, k, entries)
	if d := diff(want, applyAll(t, random, entries)); d != "" {
		t.Errorf("adopted and named in the specification: %s", d)
	}
	replayed := equipped(t, nil, store, text)
	if d := diff(want, applyAll(t, replayed, entries)); d != "" {
		t.Errorf("replayed: %s", d)
	}
	rows, items := storeItems(t, store, "rows", 1, 8, 4), storeItems(t, store, "items", 1, 9, 5)
	for name, ref := range map[string]swarms.ModelRef{
		"its tensor embed.weight is of F32 [8 2], and the cell takes F32 [9 2]":   rows,
		"its tensor readout.weight is of F32 [5 5], and the cell takes F32 [4 5]": items,
		"it has no tensor embed.weight, of F32 [9 2]": storeRandom(t, store, "plain", 1, []safetensors.Values{
			{Name: "weight_ih", Shape: []int64{15, 2}},
			{Name: "weight_hh", Shape: []int64{15, 5}},
			{Name: "bias_ih", Shape: []int64{15}},
			{Name: "bias_hh", Shape: []int64{15}},
			{Name: "readout.weight", Shape: []int64{4, 5}},
			{Name: "readout.bias", Shape: []int64{4}},
		}),
	} {
		_, err := k.Apply(t.Context(), adoption(t, ref))
		if !errors.As(err, new(*jobs.Error)) || !strings.Contains(err.Error(), name) {
			t.Errorf("adoption of %s: %v, want a refusal with %q", ref.Name, err, name)
		}
	}
}

// TestScores: an entry that names items is answered with scores, of the items that it names and no
// others, and one that names none is answered as of a swarm without items.
func TestScores(t *testing.T) {
	s := openAgentState(t, openNamed(t, *opentest.Name), askingText)
	observe := func(items []int32) *batch.AgentDecisions {
		t.Helper()
		a := mustApply(t, s, swarms.EntryObserve, &batch.AgentObservations{
			Agent: []uint32{7, 0, 7}, Features: []float32{8, 0, 3}, Width: 1, Item: items,
		})
		d, err := batch.DecodeAgentDecisions(a.Data)
		testkit.NoError(t, "batch.DecodeAgentDecisions", err)
		return d
	}
	if d := observe(nil); d.Score != nil {
		t.Errorf("scores %v without items", d.Score)
	}
	d := observe([]int32{3, -1, 0})
	if len(d.Score) != 3 || !math.IsNaN(float64(d.Score[1])) {
		t.Fatalf("scores %v, want two and one that is NaN", d.Score)
	}
	for _, i := range []int{0, 2} {
		if v := d.Score[i]; !(v > 0 && v < 1) {
			t.Errorf("score %v, want one from 0 to 1", v)
		}
	}
	for name, o := range map[string]*batch.AgentObservations{
		"feature 0 is 9: it is the number of a row of cell.embed, 0 to 8": {Features: []float32{9}, Width: 1},
		"feature 0 is 0.5": {Features: []float32{0.5}, Width: 1},
		"feature 0 is -1":  {Features: []float32{-1}, Width: 1},
		"is for item 4: use 0 to 3, or -1": {
			Features: []float32{1}, Width: 1, Item: []int32{4},
		},
		"is for item -2":      {Features: []float32{1}, Width: 1, Item: []int32{-2}},
		"the swarm takes 1":   {Features: []float32{1, 2}, Width: 2},
		"feature 0 is NaN":    {Features: []float32{float32(math.NaN())}, Width: 1},
		"the swarm has none:": nil,
	} {
		of := s
		if o == nil {
			of = openAgentState(t, openHost(t), gruText)
			o = &batch.AgentObservations{Features: []float32{1, 2}, Width: 2, Item: []int32{0}}
		}
		o.Agent = []uint32{1}
		_, err := of.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryObserve, Data: encoded(t, o)})
		if refused := (*jobs.Error)(nil); !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want a refusal with %q", o, err, name)
		}
	}
}

// TestItemsDigest: an embedding and items are part of the digest of a state.
func TestItemsDigest(t *testing.T) {
	digests := map[string]string{}
	for _, text := range []string{
		askingText, strings.Replace(askingText, "items: 4", "items: 5", 1),
		strings.Replace(askingText, "rows: 9", "rows: 10", 1),
		strings.Replace(askingText, "width: 2", "width: 3", 1), strings.Replace(askingText, ", items: 4", "", 1),
	} {
		d := openAgentState(t, openHost(t), text).Info().Digest
		if other := digests[d]; other != "" {
			t.Errorf("one digest of\n%s\nand\n%s", text, other)
		}
		digests[d] = text
	}
}

// TestItemsContinue: a swarm goes on from a snapshot of the same embedding and the same items
// alone.
func TestItemsContinue(t *testing.T) {
	of := func(text string) *swarm.Spec {
		spec, err := swarm.Parse("test.yaml", []byte(text))
		testkit.NoError(t, "swarm.Parse", err)
		return spec
	}
	testkit.NoError(t, "Continues", of(askingText).Continues(of(askingText)))
	for _, change := range [][2]string{{"items: 4", "items: 5"}, {"rows: 9", "rows: 10"}, {"width: 2", "width: 3"}} {
		if err := of(strings.Replace(askingText, change[0], change[1], 1)).Continues(of(askingText)); err == nil {
			t.Errorf("%s continues from %s", change[1], change[0])
		}
	}
}
