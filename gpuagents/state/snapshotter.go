package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/conversations"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Snapshotter is a State with the operations on a swarm as a whole: snapshot, restore and reset. It
// also gives votes their rounds. The goroutine that serves the shard uses it.
type Snapshotter struct {
	State
	swarm  swarms.Swarm   // the record when the shard was opened
	spec   *swarm.Spec    // of that record
	store  snapshot.Store // nil: there are no snapshots
	groups GroupRange     // of the shard
	rules  swarm.Rules
	// rounds is shared with the checkpoint of the shard.
	rounds *Rounds
	held   *weights.Holder // holds language models on the device; nil: there are none
	files  snapshot.Files  // opens language models of the store; nil: there are none
}

// NewSnapshotter adds snapshots, restores and resets to a State, which it does not close. store may
// be nil. The caller sets the last round with Rounds before the first entry, if there is a
// checkpoint.
func NewSnapshotter(of State, s swarms.Swarm, spec *swarm.Spec, has GroupRange, store snapshot.Store) *Snapshotter {
	r := &Rounds{concludes: spec.Topology().ByAgent && has.Shards == 1}
	if a, ok := of.(*agentState); ok {
		a.rounds, r.measures = r, a.agents.Cell().Measures()
	}
	if c, ok := of.(*conversationState); ok {
		c.rounds = r
	}
	rules, _ := spec.Rules() // a State was made of the specification, so they are valid
	return &Snapshotter{State: of, swarm: s, spec: spec, store: store, groups: has, rules: rules, rounds: r}
}

// UseLanguages has Equip hold the language model of conversations by h, and open it by files. Both
// belong to the caller, and the State is closed before h.
func (k *Snapshotter) UseLanguages(h *weights.Holder, files snapshot.Files) {
	k.held, k.files = h, files
}

// Rounds returns the last round of the swarm, which the caller keeps with its checkpoints. The
// caller reads and restores it in the goroutine that serves the shard.
func (k *Snapshotter) Rounds() *Rounds { return k.rounds }

// Layout returns the layout of the pages of Memory.
func (k *Snapshotter) Layout() kernels.Layout { return layoutOf(k.State) }

// Info implements State: pages depend on the snapshot that the swarm was restored from. A
// checkpoint of another origin then has another digest and is discarded.
func (k *Snapshotter) Info() Info {
	of := k.State.Info()
	if from := k.swarm.From; from != nil {
		sum := sha256.Sum256([]byte(of.Digest + " from " + from.SHA256))
		of.Digest = hex.EncodeToString(sum[:])
	}
	return of
}

// Apply implements State. It answers snapshots and resets itself, gives a vote its round, and
// passes all other entries to the State below.
func (k *Snapshotter) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
	switch e.Kind {
	case swarms.EntrySnapshot:
		return k.save(ctx, e)
	case swarms.EntryReset:
		return k.clear(ctx, e.Data)
	case swarms.EntryVote:
		if !k.spec.Topology().ByAgent { // the State below refuses it
			break
		}
		last := k.rounds.last
		e, err := k.rounds.number(e)
		if err != nil {
			return Answer{}, err
		}
		a, err := k.vote(ctx, e)
		if refused := (*jobs.Error)(nil); err != nil && !errors.As(err, &refused) {
			k.rounds.last = last // the vote is not answered, so the entry comes again
		}
		return a, err
	case swarms.EntryConclude:
		return k.conclude(e)
	case swarms.EntryAdopt:
		return k.adopt(ctx, e.Data)
	}
	return k.State.Apply(ctx, e)
}

// vote answers a vote with a round. The decision of the only shard of a swarm is the outcome, and
// the rules of the swarm react to it before the next entry.
func (k *Snapshotter) vote(ctx context.Context, e swarms.Entry) (Answer, error) {
	a, err := k.State.Apply(ctx, e)
	if err != nil || !k.rounds.concludes {
		return a, err
	}
	a.Voted.Reactions = k.rules.React(a.Voted, k.rounds.Outcome(), k.spec.Vote.Candidates)
	for i, r := range a.Voted.Reactions {
		if r.Action == swarms.ReactSubmit {
			a.Voted.Reactions[i].Job = k.swarm.JobID(k.spec.Jobs[r.Name].Tenant, r.Name, e.Seq, r.Rule)
		}
	}
	if a.Voted, err = k.rounds.conclude(*a.Voted); err != nil {
		return Answer{}, err
	}
	if a.Steps, err = k.react(ctx, a.Voted.Reactions); err != nil {
		return Answer{}, err
	}
	a.Data, err = json.Marshal(a.Voted)
	return a, err
}

// conclude makes the decision of all shards, which a client has merged, the outcome of this one.
func (k *Snapshotter) conclude(e swarms.Entry) (Answer, error) {
	if !k.spec.Topology().ByAgent || k.rounds.concludes {
		return Answer{}, unknownKind(e)
	}
	v, err := swarms.DecodeConclude(e.Data)
	if err == nil {
		err = v.Check(k.spec.Agents, len(k.spec.Vote.Candidates))
	}
	if err != nil {
		return Answer{}, err
	}
	of, err := k.rounds.conclude(v)
	if err != nil {
		return Answer{}, err
	}
	data, err := json.Marshal(of)
	return Answer{Kind: swarms.EntryConcluded, Data: data}, err
}

// clear resets all agents to their initial state, and removes the outcome. The rounds go on from
// the last one.
func (k *Snapshotter) clear(ctx context.Context, data []byte) (Answer, error) {
	r, err := swarms.DecodeReset(data)
	if err != nil {
		return Answer{}, err
	}
	if err := k.Reset(ctx); err != nil {
		return Answer{}, err
	}
	k.rounds.Restore(k.rounds.last, nil)
	data, err = json.Marshal(r)
	return Answer{Kind: swarms.EntryCleared, Data: data}, err
}

// Equip gives the agents the weights of the model that they have adopted last or, without one, of
// the model of the specification. It does nothing if there is neither. It comes after a restore and
// before the next entry. A *jobs.Error says what is wrong with the model.
func (k *Snapshotter) Equip(ctx context.Context) error {
	of := k.rounds.Adopted()
	if of == nil {
		of = k.spec.Model()
	}
	if of == nil {
		return nil
	}
	return k.equip(ctx, *of)
}

// equip is Equip for a model. After an error of another class than ErrDevice the weights are
// unchanged.
func (k *Snapshotter) equip(ctx context.Context, of swarms.ModelRef) error {
	if err := errors.Join(k.spec.TakesModel(), of.Validate()); err != nil {
		return err
	}
	if k.store == nil {
		return jobs.Errorf(jobs.CodeInvalid, "model %s: no models are read here: start all GPU agents, and "+
			"what replays logs, with --snapshots and the same folder or bucket", of.Name)
	}
	if s, is := k.State.(*conversationState); is {
		return k.equipLanguage(ctx, s, of)
	}
	s := k.State.(*agentState) // of every other swarm that takes a model
	m, err := model.Find(ctx, k.store, of)
	var w *model.Weights
	if err == nil {
		w, err = m.Shared(ctx, k.store, of, s.agents.Cell())
	}
	if err != nil {
		return refusedModel(ctx, err)
	}
	s.weights = w
	return s.agents.SetWeights(ctx, w.Table)
}

// equipLanguage gives conversations their model.
func (k *Snapshotter) equipLanguage(ctx context.Context, s *conversationState, of swarms.ModelRef) error {
	if k.files == nil || k.held == nil {
		return jobs.Errorf(jobs.CodeInvalid, "model %s: no language models are read here", of.Name)
	}
	m, err := conversations.NewMachine(ctx, s.dev, k.held, weights.Ref{ModelRef: of, Exact: k.spec.Cell.Exact},
		languageSource(k.store, k.files, of), s.options)
	if err != nil {
		return refusedModel(ctx, err)
	}
	return s.all.Equip(ctx, m)
}

func languageSource(store snapshot.Store, files snapshot.Files, of swarms.ModelRef) func(context.Context) (
	weights.Source, error,
) {
	return func(ctx context.Context) (weights.Source, error) {
		o, err := model.Open(ctx, store, files, of)
		if err != nil {
			return nil, err // and not a Source
		}
		return o, nil
	}
}

// HoldLanguage holds the language model of a specification, which the caller releases after the
// State. It comes before New, because the pages of a shard take all the memory that is left, and a
// shard gives nothing before it is open. Without a model, or after an error, which Equip meets again
// and tells, it returns nil.
func HoldLanguage(
	ctx context.Context, h *weights.Holder, store snapshot.Store, files snapshot.Files, spec *swarm.Spec,
) *weights.Model {
	if spec.Cell.Kind != cells.TransformerName || h == nil || store == nil || files == nil {
		return nil
	}
	of := swarms.ModelRef{Name: spec.Cell.Model, SHA256: spec.Cell.ModelSHA256}
	m, err := h.Hold(ctx, weights.Ref{ModelRef: of, Exact: spec.Cell.Exact}, languageSource(store, files, of))
	if err != nil {
		return nil
	}
	return m
}

// refusedModel returns the error for a model that could not be read.
func refusedModel(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, model.ErrNotFound):
		return jobs.Errorf(jobs.CodeInvalid, "%v: put it back: exoswarm model list shows those there are", err)
	case errors.Is(err, model.ErrMismatch), errors.Is(err, cells.ErrParameter):
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	case errors.Is(err, model.ErrCorrupt):
		return jobs.Errorf(jobs.CodeIO, "%v: put its file back", err)
	}
	return err
}

// adopt changes the weights of all agents. A failure of the store is an answer: the user may ask
// again. So a replay must not apply an entry that was refused; see shard.
func (k *Snapshotter) adopt(ctx context.Context, data []byte) (Answer, error) {
	a, err := swarms.DecodeAdopt(data)
	if err == nil {
		err = k.spec.Adopts()
	}
	if err != nil {
		return Answer{}, err
	}
	switch err := k.equip(ctx, a.ModelRef); {
	case err == nil:
	case ctx.Err() != nil:
		return Answer{}, context.Cause(ctx)
	case errors.As(err, new(*jobs.Error)), errors.Is(err, gpubatch.ErrDevice):
		return Answer{}, err
	default:
		return Answer{}, jobs.Errorf(jobs.CodeIO, "%v: see that the place can be read, and adopt it again", err)
	}
	k.rounds.Adopt(&a.ModelRef)
	data, err = json.Marshal(a)
	return Answer{Kind: swarms.EntryAdopted, Data: data}, err
}

// memory returns the pages as a snapshot reads and writes them, until ctx ends. The result is valid
// while the memory is open. Reads move no page to the device.
func (k *Snapshotter) memory(ctx context.Context) *snapshot.Pages {
	m := k.Memory()
	return &snapshot.Pages{
		Layout: layoutOf(k.State), First: k.groups.First, Groups: k.groups.Groups,
		Read:  func(page uint64, buf []byte) error { return m.Read(ctx, page, buf) },
		Write: func(page uint64, content []byte) error { return m.Write(ctx, page, content) },
		Host:  func(bytes int64) (device.HostBuffer, error) { return m.Device().AllocHost(bytes, "snapshot") },
	}
}

// errNoSnapshots refuses what needs a store of snapshots.
var errNoSnapshots = jobs.Errorf(
	jobs.CodeInvalid,
	"this GPU agent keeps no snapshots: start all of them with --snapshots and the same folder or bucket",
)

// save writes a snapshot. It does not change the state, so a failure of the store is an answer: the
// user may ask again.
func (k *Snapshotter) save(ctx context.Context, e swarms.Entry) (Answer, error) {
	want, err := swarms.DecodeSnapshot(e.Data)
	if err != nil {
		return Answer{}, err
	}
	if k.store == nil {
		return Answer{}, errNoSnapshots
	}
	s, name, shard := k.swarm, want.Name, (*snapshot.Shard)(nil)
	if k.groups.Shards > 1 {
		name, shard = snapshot.PartName(
			want.Name, k.groups.Shard,
		), &snapshot.Shard{
			Number: k.groups.Shard,
			Of:     k.groups.Shards,
			First:  k.groups.First,
			Groups: k.groups.All,
		}
		if err := jobs.CheckID("snapshot", name); err != nil {
			return Answer{}, jobs.Errorf(
				jobs.CodeInvalid, "%v, as the part of a shard is called: choose a shorter name", err,
			)
		}
	}
	m, digest, err := snapshot.Save(ctx, k.store, snapshot.Manifest{
		Name:  name,
		Swarm: snapshot.OriginOf(s),
		Entry: e.Seq,
		Round: k.rounds.last,

		Outcome: k.rounds.outcome,
		Model:   k.rounds.adopted,
		Shard:   shard,
		Cell:    k.State.Info().Cell,
		Seed:    k.spec.Seed,
		Spec:    s.Spec,
	}, k.memory(ctx))
	switch {
	case err == nil:
	case ctx.Err() != nil: // the next process writes it again
		return Answer{}, context.Cause(ctx)
	case errors.Is(err, gpubatch.ErrDevice):
		return Answer{}, err
	case errors.Is(err, snapshot.ErrExists):
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "%v: choose another name, or remove it", err)
	default:
		return Answer{}, jobs.Errorf(
			jobs.CodeIO, "%v: see that the place has room and may be written, and ask again", err,
		)
	}
	data, err := json.Marshal(swarms.Snapshotted{
		Version: jobs.Version,
		Name:    m.Name,
		Entry:   e.Seq,
		Agents:  m.Agents,
		Groups:  m.Groups,
		Bytes:   m.Bytes(),
		SHA256:  digest,
	})
	return Answer{Kind: swarms.EntrySnapshotted, Data: data}, err
}

// Load restores the agents, the last round, the outcome and the adopted model from a snapshot;
// Equip reads the weights. The agents are in their initial state before the call. A *jobs.Error
// says what is wrong with the snapshot; another attempt will not succeed. After an error the pages
// are undefined.
func (k *Snapshotter) Load(ctx context.Context, from swarms.SnapshotRef) error {
	if k.store == nil {
		return errNoSnapshots
	}
	parts, digest, err := snapshot.ReadSet(ctx, k.store, from.Name)
	if err == nil && digest != from.SHA256 {
		return jobs.Errorf(
			jobs.CodeInvalid,
			"snapshot %s: its manifest has the SHA-256 %s, the swarm was made from %s: put that one back",
			from.Name, digest, from.SHA256,
		)
	}
	if err == nil {
		err = k.covers(parts)
	}
	for i := 0; i < len(parts) && err == nil; i++ {
		k.rounds.merge(parts[i].Round, parts[i].Outcome)
		k.rounds.Adopt(parts[i].Model)
		if err = k.fits(parts[i]); err == nil {
			err = snapshot.Load(ctx, k.store, parts[i], k.memory(ctx))
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, snapshot.ErrNotFound):
		return jobs.Errorf(jobs.CodeInvalid, "%v: exoswarm snapshot list shows those there are", err)
	case errors.Is(err, snapshot.ErrMismatch):
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	case errors.Is(err, snapshot.ErrCorrupt):
		return jobs.Errorf(jobs.CodeIO, "%v: restore from another one", err)
	default:
		return err
	}
	return k.Restored(ctx)
}

// covers returns an ErrMismatch for a snapshot of a single shard that is not this one.
func (k *Snapshotter) covers(parts []*snapshot.Manifest) error {
	m := parts[0]
	if m.Shard == nil || len(parts) == m.Shard.Of ||
		m.Swarm.Of(k.swarm) && m.First() == k.groups.First && m.Groups == k.groups.Groups {
		return nil
	}
	return fmt.Errorf(
		"snapshot %s: %w: it has shard %d of %d of a swarm alone: name what all of them are parts of", m.Name,
		snapshot.ErrMismatch, m.Shard.Number, m.Shard.Of,
	)
}

// fits returns an ErrMismatch that says why the swarm cannot continue from a snapshot.
func (k *Snapshotter) fits(m *snapshot.Manifest) error {
	from, err := swarm.FromJSON(m.Spec)
	if err == nil {
		if m.Model != nil && !m.Swarm.Of(k.swarm) {
			from.Cell.Model = m.Model.Name
		}
		err = k.spec.Continues(from)
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w: %w", m.Name, snapshot.ErrMismatch, err)
	}
	return nil
}
