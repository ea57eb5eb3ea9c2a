package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// NewSwarm is the body of a request for a swarm.
type NewSwarm struct {
	// Spec is the specification, as YAML or JSON in a text. A swarm of groups without groups has as
	// many as the entities that it may have, and takes rows.
	Spec string `json:"spec"`
	// Name replaces the name in the specification; empty: that counts.
	Name string `json:"name,omitempty"`
	// From is the name of the snapshot of its first state; empty: the initial state.
	From string `json:"from,omitempty"`
	// Open takes a swarm of that name with the same specification, if there is one.
	Open bool `json:"open,omitempty"`
}

// MadeSwarm describes a swarm to a program.
type MadeSwarm struct {
	ID      string `json:"id"`
	Created bool   `json:"created"` // by this request
	// Addressed is agent or group.
	Addressed  string   `json:"addressed"`
	Agents     int64    `json:"agents"`
	Groups     int      `json:"groups"`
	Candidates []string `json:"candidates"`
	// Timestamp, Key and Features name the columns of rows.
	Timestamp string   `json:"timestamp"`
	Key       []string `json:"key"`
	Features  []string `json:"features"`
}

func madeSwarm(s *swarmclient.Swarm, created bool) MadeSwarm {
	spec := s.Spec()
	m := MadeSwarm{
		ID: s.ID(), Created: created, Addressed: "group", Groups: s.Record().Groups,
		Agents: int64(s.Record().Groups) * int64(spec.AgentsPerGroup), Candidates: spec.Vote.Candidates,
		Timestamp: spec.Timestamp, Key: append([]string{}, spec.Key...), Features: spec.Features,
	}
	if spec.Topology().ByAgent {
		m.Addressed = "agent"
	}
	return m
}

func (s *Server) create(ctx context.Context, _ *request, in NewSwarm) (any, error) {
	spec, err := swarm.Parse("spec", []byte(in.Spec))
	if err != nil {
		return nil, invalid(err)
	}
	if in.Name != "" {
		if err := jobs.CheckID("swarm", in.Name); err != nil {
			return nil, err
		}
		spec.Name = in.Name
	}
	feedable(spec)
	if spec.Cell.Model != "" && spec.Cell.ModelSHA256 == "" && s.o.Snapshots != nil {
		if _, spec.Cell.ModelSHA256, err = model.ReadManifest(ctx, s.o.Snapshots, spec.Cell.Model); err != nil {
			return nil, invalid(err)
		}
	}
	if in.Open {
		was, err := s.client.Open(ctx, spec.Name)
		if err == nil {
			if err := sameSpec(was, spec); err != nil {
				return nil, err
			}
			return madeSwarm(was, false), nil
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return nil, err
		}
	}
	var from *swarms.SnapshotRef
	if in.From != "" {
		if from, err = s.snapshotRef(ctx, in.From); err != nil {
			return nil, err
		}
	}
	made, err := s.client.Create(ctx, spec, from)
	if err != nil {
		return nil, err
	}
	s.o.Log.Info("a program has created a swarm", "swarm", made.ID())
	return madeSwarm(made, true), nil
}

// invalid makes an error of a specification one of the request.
func invalid(err error) error {
	if e := (*jobs.Error)(nil); errors.As(err, &e) {
		return err
	}
	return jobs.Errorf(jobs.CodeInvalid, "%v", err)
}

func sameSpec(was *swarmclient.Swarm, spec *swarm.Spec) error {
	now, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	before, err := json.Marshal(was.Spec())
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	if string(now) == string(before) {
		return nil
	}
	var names []string
	var a, b map[string]json.RawMessage
	if json.Unmarshal(now, &a) == nil && json.Unmarshal(before, &b) == nil {
		for k := range a {
			if string(a[k]) != string(b[k]) {
				names = append(names, k)
			}
		}
		for k := range b {
			if _, ok := a[k]; !ok {
				names = append(names, k)
			}
		}
	}
	return fmt.Errorf(
		"swarm %s: %w with another specification, which differs in %s: choose another name, delete it, or "+
			"use its specification",
		was.ID(),
		jobs.ErrExists,
		strings.Join(names, ", "),
	)
}

// snapshotRef finds a snapshot of a whole swarm.
func (s *Server) snapshotRef(ctx context.Context, name string) (*swarms.SnapshotRef, error) {
	if s.o.Snapshots == nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "snapshot %s: this server has no place of snapshots", name)
	}
	if err := jobs.CheckID("snapshot", name); err != nil {
		return nil, err
	}
	_, digest, err := snapshot.ReadManifest(ctx, s.o.Snapshots, name)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", name, err)
	}
	return &swarms.SnapshotRef{Name: name, SHA256: digest}, nil
}

func (s *Server) remove(ctx context.Context, w http.ResponseWriter, r *request) error {
	id := r.PathValue("name")
	if err := s.client.Delete(ctx, id, nil); err != nil {
		return err
	}
	s.mu.Lock()
	f := s.feeds[id]
	delete(s.feeds, id)
	s.mu.Unlock()
	if f != nil {
		select {
		case f.turn <- struct{}{}:
			f.broken = true
			f.close()
			<-f.turn
		case <-ctx.Done(): // its request ends without a swarm
		}
	}
	s.o.Log.Info("a program has deleted a swarm", "swarm", id)
	return write(w, nil)
}

// observe gives inputs to agents, and answers with their votes and the decisions of their groups.
// The request has the arrays agent and features, the answer agent, vote and decision. With the
// array item the answer has score too.
func (s *Server) observe(ctx context.Context, w http.ResponseWriter, r *request) error {
	if m := httpapi.Media(r.Request.Request); m != MediaArrays {
		return mediaError(m, "inputs are "+MediaArrays)
	}
	sw, err := s.client.Open(ctx, r.PathValue("name"))
	if err != nil {
		return err
	}
	if !sw.Spec().Topology().ByAgent {
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s: its groups are addressed: feed it rows", sw.ID())
	}
	a, err := numpy.ReadArchive(r.body, maxUnpacked)
	if err != nil {
		return jobs.Errorf(jobs.CodeInput, "observe: %v", err)
	}
	o := &batch.AgentObservations{}
	if o.Agent, _, err = numpy.Values[uint32](a, "agent"); err != nil {
		return jobs.Errorf(jobs.CodeInput, "observe: %v", err)
	}
	if o.Features, o.Width, err = numpy.Values[float32](a, "features"); err != nil {
		return jobs.Errorf(jobs.CodeInput, "observe: %v", err)
	}
	if want := len(sw.Spec().Features); o.Width != want || len(o.Features) != len(o.Agent)*want {
		return jobs.Errorf(jobs.CodeInput, "observe: %d values in rows of %d for %d agents: each agent gets %d: %s",
			len(o.Features), o.Width, len(o.Agent), want, strings.Join(sw.Spec().Features, ", "))
	}
	if a.Has(swarm.ItemColumn) {
		var width int
		if o.Item, width, err = numpy.Values[int32](a, swarm.ItemColumn); err != nil {
			return jobs.Errorf(jobs.CodeInput, "observe: %v", err)
		}
		if len(o.Item) != len(o.Agent) || width != 1 {
			return jobs.Errorf(jobs.CodeInput, "observe: %d items for %d agents: give one for each, -1 to ask for no "+
				"score", len(o.Item), len(o.Agent))
		}
	}
	var all batch.AgentDecisions
	if _, err := sw.Observe(ctx, o, func(d *batch.AgentDecisions) error {
		all.Agent, all.Vote, all.Decision = append(all.Agent, d.Agent...), append(all.Vote, d.Vote...),
			append(all.Decision, d.Decision...)
		all.Score = append(all.Score, d.Score...)
		return nil
	}); err != nil {
		return err
	}
	return write(w, archive(func(z *numpy.ArchiveWriter) {
		z.Array("agent", all.Agent, 0)
		z.Array("vote", all.Vote, 0)
		z.Array("decision", all.Decision, 0)
		if o.Item != nil {
			z.Array("score", all.Score, 0)
		}
	}))
}

// Ticks is the body of a request for steps.
type Ticks struct {
	Count int `json:"count"` // 1 to MaxTickCount
}

// MaxTickCount bounds the steps of a request.
const MaxTickCount = 100_000

// TickedAll is the answer to steps.
type TickedAll struct {
	// Stepped is the number of steps of all agents together.
	Stepped uint64 `json:"stepped"`
	// Tally are the agents that vote for each candidate after the last step.
	Tally []uint64 `json:"tally"`
}

func (in Ticks) valid() error {
	if in.Count < 1 || in.Count > MaxTickCount {
		return jobs.Errorf(jobs.CodeInvalid, "tick: count %d: use 1 to %d", in.Count, MaxTickCount)
	}
	return nil
}

func tick(ctx context.Context, sw *swarmclient.Swarm, in Ticks) (any, error) {
	t, err := sw.Tick(ctx, in.Count)
	return TickedAll{Stepped: t.Stepped, Tally: t.Tally}, err
}

// Queried is the body of a question: ids of agents or of groups, or numbers of knowledge nodes.
type Queried struct {
	Agents []uint32 `json:"agents,omitempty"`
	Groups []uint32 `json:"groups,omitempty"`
	Nodes  []uint32 `json:"nodes,omitempty"`
}

func (in Queried) valid() error {
	most := max(len(in.Agents), len(in.Groups), len(in.Nodes))
	if most == 0 || most > swarms.MaxAddressed || most < len(in.Agents)+len(in.Groups)+len(in.Nodes) {
		return jobs.Errorf(jobs.CodeInvalid, "query: %d agents, %d groups and %d nodes: ask for 1 to %d of one of them",
			len(in.Agents), len(in.Groups), len(in.Nodes), swarms.MaxAddressed)
	}
	return nil
}

// query answers with the states of agents or groups as arrays: agent or group first, and then vote
// and state, or decision, round and counts. A swarm that addresses groups has the variables of its
// cell, as state.NAME, and embedding. Knowledge nodes have node, updates, age and units.
func query(ctx context.Context, sw *swarmclient.Swarm, in Queried) (any, error) {
	agents := len(in.Agents) > 0
	variables := func(z *numpy.ArchiveWriter, all []batch.Variable) {
		for _, v := range all {
			z.Array("state."+v.Name, v.Values, v.Width)
		}
	}
	switch {
	case len(in.Nodes) > 0:
		return knowledge(ctx, sw, in.Nodes)
	case sw.Spec().Topology().ByAgent && agents:
		a, err := sw.AgentStates(ctx, in.Agents)
		return archive(func(z *numpy.ArchiveWriter) {
			z.Array("agent", a.Agent, 0)
			z.Array("vote", a.Vote, 0)
			z.Array("state", a.State, a.Width)
		}), err
	case sw.Spec().Topology().ByAgent:
		g, err := sw.GroupStates(ctx, in.Groups)
		return archive(func(z *numpy.ArchiveWriter) {
			z.Array("group", g.Group, 0)
			z.Array("decision", g.Decision, 0)
			z.Array("round", g.Round, 0)
			z.Array("counts", g.Counts, g.Candidates)
		}), err
	case agents:
		a, err := sw.AgentVariables(ctx, in.Agents)
		return archive(func(z *numpy.ArchiveWriter) {
			z.Array("agent", a.Agent, 0)
			if a.Width > 0 {
				z.Array("embedding", a.Embedding, a.Width)
			}
			variables(z, a.Vars)
		}), err
	}
	g, err := sw.GroupVariables(ctx, in.Groups)
	return archive(func(z *numpy.ArchiveWriter) {
		z.Array("group", g.Group, 0)
		variables(z, g.Vars)
	}), err
}

// VotedAll is the answer to a vote.
type VotedAll struct {
	swarms.Voted
	// Decision is the name of the candidate that has won, or none.
	Decision string `json:"decision"`
}

func vote(ctx context.Context, sw *swarmclient.Swarm, in swarms.Vote) (any, error) {
	v, err := sw.Vote(ctx, in)
	if err != nil {
		return nil, err
	}
	out := VotedAll{Voted: v, Decision: swarmclient.None}
	if v.Winner != nil {
		out.Decision = sw.Candidate(*v.Winner)
	}
	return out, nil
}

func validFuse(in swarms.Fuse) error {
	if in.Sums {
		return jobs.Errorf(jobs.CodeInvalid, "fuse: sums: nodes have means: leave it out")
	}
	return in.Validate()
}

// fuse answers with the knowledge nodes of a swarm as arrays: node, count and mean.
func fuse(ctx context.Context, sw *swarmclient.Swarm, in swarms.Fuse) (any, error) {
	f, err := sw.Fuse(ctx, in)
	return archive(func(z *numpy.ArchiveWriter) {
		z.Array("node", f.Node, 0)
		z.Array("count", f.Count, 0)
		z.Array("mean", f.Mean, f.Width)
	}), err
}

func (s *Server) reset(ctx context.Context, w http.ResponseWriter, r *request) error {
	sw, err := s.client.Open(ctx, r.PathValue("name"))
	if err != nil {
		return err
	}
	var f *feeder
	if explains(sw.Spec()) {
		var done func()
		if f, done, err = s.feed(ctx, r.PathValue("name")); err != nil {
			return err
		}
		defer done()
	}
	if err := sw.Reset(ctx); err != nil {
		return err
	}
	if f != nil {
		if err := f.resetSummaries(ctx); err != nil {
			return err
		}
	}
	return write(w, nil)
}

// NewSnapshot is the body of a request for a snapshot.
type NewSnapshot struct {
	Name string `json:"name"`
}

// MadeSnapshot describes a snapshot.
type MadeSnapshot struct {
	Name string `json:"name"`
	// Parts are the names of the snapshots of its shards: the name itself of a swarm of one shard.
	Parts []string `json:"parts"`
}

func takeSnapshot(ctx context.Context, sw *swarmclient.Swarm, in NewSnapshot) (any, error) {
	if _, err := sw.Snapshot(ctx, in.Name); err != nil {
		return nil, err
	}
	out := MadeSnapshot{Name: in.Name, Parts: []string{in.Name}}
	if n := sw.Record().ShardCount(); n > 1 {
		out.Parts = nil
		for k := range n {
			out.Parts = append(out.Parts, snapshot.PartName(in.Name, k))
		}
	}
	return out, nil
}

// maxSnapshot bounds the arrays of a snapshot that an answer has, in bytes.
const maxSnapshot = 4 << 30

// readSnapshot answers with the arrays of a snapshot: VARIABLE-00000 and so on, and its manifest.
// The files are checked against the manifest before the first byte of the answer.
func (s *Server) readSnapshot(ctx context.Context, w http.ResponseWriter, r *request) error {
	name := r.PathValue("snapshot")
	if s.o.Snapshots == nil {
		return jobs.Errorf(jobs.CodeInvalid, "snapshot %s: this server has no place of snapshots", name)
	}
	if err := jobs.CheckID("snapshot", name); err != nil {
		return err
	}
	m, _, err := snapshot.ReadManifest(ctx, s.o.Snapshots, name)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	if n := m.Bytes(); n > maxSnapshot {
		return httpapi.Errorf(
			http.StatusRequestEntityTooLarge,
			"the body is too large: snapshot %s has %d bytes, and an "+
				"answer has at most %d: read its files",
			name,
			n,
			int64(maxSnapshot),
		)
	}
	if err := snapshot.Verify(ctx, s.o.Snapshots, m, nil); err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	c := http.NewResponseController(w)
	return write(w, archive(func(z *numpy.ArchiveWriter) {
		z.JSON("manifest", m)
		for _, v := range m.Variables {
			for _, file := range v.Files {
				// A slow client may take long for all files together.
				_ = c.SetWriteDeadline(time.Now().Add(patience))
				from, err := s.o.Snapshots.Open(ctx, path.Join(name, file.Name))
				if err != nil { // the archive ends without its directory, so no client takes it for whole
					s.o.Log.Warn("a snapshot was not sent", "snapshot", name, "error", err)
					panic(http.ErrAbortHandler)
				}
				z.File(strings.TrimSuffix(file.Name, ".npy"), from)
				_ = from.Close()
			}
		}
	}))
}
