package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// storeModel stores random weights for gruText as a model: 5 units, 2 inputs, 3 candidates.
func storeModel(t testing.TB, store snapshot.Store, name string, seed uint64) swarms.ModelRef {
	t.Helper()
	return storeRandom(t, store, name, seed, []safetensors.Values{
		{Name: "weight_ih", Shape: []int64{15, 2}},
		{Name: "weight_hh", Shape: []int64{15, 5}},
		{Name: "bias_ih", Shape: []int64{15}},
		{Name: "bias_hh", Shape: []int64{15}},
		{Name: "readout.weight", Shape: []int64{3, 5}},
		{Name: "readout.bias", Shape: []int64{3}},
	})
}

func storeRandom(
	t testing.TB, store snapshot.Store, name string, seed uint64, of []safetensors.Values,
) swarms.ModelRef {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var all []safetensors.Values
	for _, v := range of {
		n := int64(1)
		for _, d := range v.Shape {
			n *= d
		}
		for range n {
			v.Of = append(v.Of, 4*r.Float32()-2)
		}
		all = append(all, v)
	}
	var b bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&b, all))
	_, digest, err := model.Save(t.Context(), store, name, b.Bytes())
	testkit.NoError(t, "model.Save", err)
	return swarms.ModelRef{Name: name, SHA256: digest}
}

func withModel(ref swarms.ModelRef) string {
	return strings.Replace(gruText, "{kind: gru,", fmt.Sprintf("{kind: gru, model: %s, model_sha256: %s,", ref.Name,
		ref.SHA256), 1)
}

func adoption(t testing.TB, ref swarms.ModelRef) swarms.Entry {
	t.Helper()
	return swarms.Entry{
		Kind: swarms.EntryAdopt, Data: encoded(t, swarms.Adopt{Version: jobs.Version, ModelRef: ref}),
	}
}

// equipped opens a swarm and gives it its weights, as an agent process does.
func equipped(t *testing.T, b *pages.Budget, store snapshot.Store, text string) *Snapshotter {
	t.Helper()
	k := openSnapshotterIn(t, openNamed(t, *opentest.Name), b, store, text, 0, nil)
	testkit.NoError(t, "Open", k.Memory().Open(t.Context(), nil))
	testkit.NoError(t, "Reset", k.Reset(t.Context()))
	testkit.NoError(t, "Equip", k.Equip(t.Context()))
	return k
}

// TestModelAsAdopted: a swarm that begins with a model answers as a swarm with random weights that
// adopts the model, and no two models answer alike. The digest of a state has the model.
func TestModelAsAdopted(t *testing.T) {
	store := openStore(t)
	one, two := storeModel(t, store, "one", 1), storeModel(t, store, "two", 2)
	digests := map[string]bool{}
	var answers [][]Answer
	for _, text := range []string{gruText, withModel(one), withModel(two)} {
		k := equipped(t, nil, store, text)
		digests[k.Info().Digest] = true
		answers = append(answers, applyAll(t, k, entriesFor(k, rand.New(rand.NewPCG(3, 3)), 3)))
		for _, ref := range []swarms.ModelRef{one, two} {
			testkit.NoError(t, "Reset", k.Reset(t.Context()))
			a, err := k.Apply(t.Context(), adoption(t, ref))
			if got, derr := swarms.DecodeAdopt(a.Data); err != nil || derr != nil || a.Kind != swarms.EntryAdopted ||
				got.ModelRef != ref || *k.Rounds().Adopted() != ref {
				t.Fatalf("adoption of %v: %+v, %v, want %q", ref, a, err, swarms.EntryAdopted)
			}
			answers = append(answers, applyAll(t, k, entriesFor(k, rand.New(rand.NewPCG(3, 3)), 3)))
		}
	}
	if len(digests) != 3 {
		t.Errorf("three sets of weights have %d digests", len(digests))
	}
	// Rows of answers: random, one, two; one, one, two; two, one, two.
	kinds := []int{0, 1, 2, 1, 1, 2, 2, 1, 2}
	for i, a := range answers {
		for j, b := range answers[:i] {
			if same := diff(a, b) == ""; same != (kinds[i] == kinds[j]) {
				t.Errorf("runs %d and %d answer alike: %v, want %v", i, j, same, !same)
			}
		}
	}
}

// TestAdoptPaged: random entries with adoptions between them give the same answers and pages with
// few frames, and with one for each page; a snapshot continues with the adopted weights, in the
// swarm and in a new one.
func TestAdoptPaged(t *testing.T) {
	store := openStore(t)
	refs := []swarms.ModelRef{storeModel(t, store, "one", 1), storeModel(t, store, "two", 2)}
	for _, text := range []string{withModel(refs[0]), strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1)} {
		paged := equipped(t, pages.NewBudget(3*64<<10+1, 1<<30), store, text)
		whole := equipped(t, nil, store, text)
		p, r := pair{paged, whole}, rand.New(rand.NewPCG(5, 5))
		for round := range uint64(20) {
			e := randomEntry(t, r, whole.State)
			for e.Kind == swarms.EntryVote { // its round may be over
				e = randomEntry(t, r, whole.State)
			}
			p.apply(t, e)
			if round%4 == 1 {
				p.apply(t, adoption(t, refs[r.IntN(2)]))
			}
		}
		p.check(t)
		name := "kept-" + fmt.Sprint(len(text))
		from := &swarms.SnapshotRef{Name: name, SHA256: take(t, whole, name, 30).SHA256}
		m, _, err := snapshot.ReadManifest(t.Context(), store, name)
		if err != nil || m.Model == nil || *m.Model != *whole.Rounds().Adopted() {
			t.Fatalf("the snapshot has the model %v, %v, want %v", m.Model, err, whole.Rounds().Adopted())
		}
		next := equipped(t, nil, store, text)
		testkit.NoError(t, "Load", next.Load(t.Context(), *from))
		testkit.NoError(t, "Equip", next.Equip(t.Context()))
		if *next.Rounds().Adopted() != *m.Model {
			t.Errorf("the restored swarm has adopted %v, want %v", next.Rounds().Adopted(), m.Model)
		}
		entries := entriesFor(whole, r, 2)
		if d := diff(applyAll(t, whole, entries), applyAll(t, next, entries)); d != "" {
			t.Errorf("the restored swarm answers otherwise: %s", d)
		}
	}
}

// TestModelRefused: a model that is gone, damaged, of other shapes, or without a place is a refusal
// that names it, and the weights stay.
func TestModelRefused(t *testing.T) {
	dir := t.TempDir()
	store, err := bucket.OpenFolder(dir)
	testkit.NoError(t, "bucket.OpenFolder", err)
	testkit.Close(t, store)
	good, bad := storeModel(t, store, "good", 1), storeModel(t, store, "bad", 2)
	testkit.NoError(t, "os.WriteFile", os.WriteFile(filepath.Join(dir, "bad.model", "weights.safetensors"),
		[]byte("x"), 0o600))
	k, twin := equipped(t, nil, store, gruText), equipped(t, nil, store, gruText)
	wide := equipped(t, nil, store, strings.Replace(gruText, "hidden: 5", "hidden: 6", 1))
	nowhere := equipped(t, nil, nil, gruText)
	leaky := equipped(t, nil, store, keptTexts["leaky by agent"])
	gone := swarms.ModelRef{Name: "gone", SHA256: good.SHA256}
	for _, of := range []struct {
		k    *Snapshotter
		ref  swarms.ModelRef
		want string
	}{
		{k, gone, "model gone: model not found: put it back"},
		{k, bad, "model bad: model is damaged"},
		{k, swarms.ModelRef{Name: "good", SHA256: bad.SHA256}, "model good: model does not fit"},
		{k, swarms.ModelRef{Name: "good", SHA256: "0"}, "64 hexadecimal digits"},
		{wide, good, "its tensor weight_ih is of F32 [15 2], and the cell takes F32 [18 2]"},
		{nowhere, good, "model good: no models are read here"},
		{leaky, good, "only a gru whose agents are addressed"},
	} {
		_, err := of.k.Apply(t.Context(), adoption(t, of.ref))
		if refused := (*jobs.Error)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), of.want) {
			t.Errorf("adoption of %v: %v, want a refusal with %q", of.ref, err, of.want)
		}
	}
	if k.Rounds().Adopted() != nil {
		t.Errorf("a refused adoption is kept: %v", k.Rounds().Adopted())
	}
	entries := entriesFor(k, rand.New(rand.NewPCG(3, 3)), 2)
	if d := diff(applyAll(t, k, entries), applyAll(t, twin, entries)); d != "" {
		t.Errorf("a refused adoption has changed the swarm: %s", d)
	}
	k = openSnapshotter(t, openHost(t), store, withModel(gone), 0, nil)
	if err := k.Equip(t.Context()); !errors.As(err, new(*jobs.Error)) || !strings.Contains(err.Error(), "model gone") {
		t.Errorf("Equip without the model: %v, want a refusal that names it", err)
	}
}

// TestAdoptShards: shards adopt a model one by one. A snapshot of shards with different weights is
// no snapshot of the swarm; when all have the model, a swarm of another number of shards begins
// with it.
func TestAdoptShards(t *testing.T) {
	d, store := openHost(t), openStore(t)
	one := storeModel(t, store, "one", 1)
	spec, err := swarm.Parse("test.yaml", []byte(gruText+"shards: 3\n"))
	testkit.NoError(t, "swarm.Parse", err)
	var shards []*Snapshotter
	for k := range 3 {
		s := openShard(t, d, nil, store, spec, spec.Groups(), k, nil)
		testkit.NoError(t, "Open", errors.Join(s.Memory().Open(t.Context(), nil), s.Reset(t.Context())))
		shards = append(shards, s)
	}
	for adopted, s := range shards {
		if _, err := s.Apply(t.Context(), adoption(t, one)); err != nil {
			t.Fatalf("adoption in shard %d: %v, want no error", adopted, err)
		}
		name := fmt.Sprint("kept-", adopted)
		for _, s := range shards {
			take(t, s, name, 2)
		}
		parts, digest, err := snapshot.ReadSet(t.Context(), store, name)
		if adopted < 2 {
			if !errors.Is(err, snapshot.ErrMismatch) || !strings.Contains(err.Error(), "weights of different models") {
				t.Errorf("%d of 3 shards have adopted: %v, want an ErrMismatch", adopted+1, err)
			}
			continue
		}
		testkit.NoError(t, "ReadSet", err)
		whole := equipped(t, nil, store, gruText)
		from := swarms.SnapshotRef{Name: name, SHA256: digest}
		testkit.NoError(t, "Load", errors.Join(whole.Load(t.Context(), from), whole.Equip(t.Context())))
		if *whole.Rounds().Adopted() != one || *parts[0].Model != one {
			t.Errorf("the swarm has adopted %v, the parts %v, want %v", whole.Rounds().Adopted(), parts[0].Model, one)
		}
	}
}
