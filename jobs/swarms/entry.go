package swarms

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// Entry is one message of a log.
type Entry struct {
	Seq  uint64 // position in its log, from 1, without gaps
	Kind string // the type of Data
	// Ref is the cause of the entry. In a log of answers it is the Seq of the entry that it
	// answers. In a log of entries it is the number of the batch in its source, from 1.
	Ref  uint64
	Data []byte // the format depends on Kind
	// Note is text of a writer of batches that is stored with the entry: up to MaxNote printable ASCII
	// characters. A position in an input is committed with its batch so. Others take an entry with a
	// note for the entry of such a writer, and do not read the text.
	Note string
	// Trace is the trace of the writer. If it is empty, Append uses the trace of its context.
	Trace jobs.Trace
	// Behind is the number of entries after this one in the log, at the time when a Reader got it.
	// It is not stored.
	Behind uint64
	// Time is when the server stored the entry, by its clock; zero if the Reader does not know. It is
	// not stored.
	Time time.Time
}

// MaxNote is the largest Note of an entry in bytes.
const MaxNote = 16 << 10

// The kinds of entry.
const (
	EntryObserve  = "observe"  // a batch of observations, packed or Arrow IPC
	EntryDecide   = "decide"   // their decisions, packed or Arrow IPC
	EntryEnd      = "end"      // the last entry of a log; EndOfInput as JSON
	EntryRejected = "rejected" // the entry named by Ref could not be applied; Error as JSON

	// Kinds of swarms whose agents are addressed. There observe and decide have ids of agents.
	EntryTick   = "tick"   // steps all agents; Tick as JSON
	EntryTicked = "ticked" // the answer to a tick; Ticked as JSON
	EntryQuery  = "query"  // asks for the state of agents or groups; Query as JSON
	EntryState  = "state"  // the answer to a query, Arrow IPC
	EntryVote   = "vote"   // asks for the ballots and the decision of all agents; Vote as JSON
	EntryVoted  = "voted"  // the answer to a vote; Voted as JSON
	// Several shards: the decision that a client has merged becomes the outcome of each.
	EntryConclude  = "conclude"  // sets the outcome of the last round; Voted as JSON
	EntryConcluded = "concluded" // the answer to a conclude; Voted as JSON, with the term
	EntryOutcome   = "outcome"   // the answer to a query for the outcome; Voted as JSON
	EntryFuse      = "fuse"      // asks for knowledge nodes; Fuse as JSON
	EntryFused     = "fused"     // the answer to a fuse: the nodes, Arrow IPC
	EntryKnown     = "known"     // the answer to a query for knowledge nodes, Arrow IPC
	EntrySums      = "sums"      // the answer to a query for the sums of knowledge nodes; NodeSums as JSON
	EntryLearn     = "learn"     // merges values into knowledge nodes; Learn as JSON
	EntryLearned   = "learned"   // the answer to a learn; Learned as JSON
	EntryAdopt     = "adopt"     // changes the weights of all agents; Adopt as JSON
	EntryAdopted   = "adopted"   // the answer to an adopt; Adopt as JSON

	// Kinds of swarms whose agents are conversations. There tick, ticked, vote and fuse are as above.
	EntryPrompt = "prompt" // has a conversation read tokens and answer; Prompt as JSON
	EntryCancel = "cancel" // ends the answer of a conversation; Cancel as JSON
	EntryRewind = "rewind" // shortens a conversation; Rewind as JSON
	EntryFork   = "fork"   // copies a conversation; Fork as JSON
	EntryPlace  = "place"  // the answer to these four; Place as JSON
	EntryText   = "text"   // the answer to a query for the tokens of a conversation; Text as JSON

	// Kinds of all swarms.
	EntrySnapshot    = "snapshot"    // asks for a snapshot of all agents; Snapshot as JSON
	EntrySnapshotted = "snapshotted" // the answer to a snapshot; Snapshotted as JSON
	EntryCompute     = "compute"     // asks for folds of expressions over all agents; Compute as JSON
	EntryComputed    = "computed"    // the answer to a compute; Computed as JSON
	EntryReset       = "reset"       // resets all agents to their initial state; Reset as JSON
	EntryCleared     = "cleared"     // the answer to a reset; Reset as JSON
)

// Asks reports whether entries of a kind are read-only: they change no agent. A replay skips such
// entries if they are answered. A job that writes a log accepts such entries of other writers
// between its own.
func Asks(kind string) bool {
	switch kind {
	case EntryQuery, EntryVote, EntryFuse, EntrySnapshot, EntryCompute:
		return true
	}
	return false
}

// EndOfInput is the data of the last entry of a log of entries, and of its answer.
type EndOfInput struct {
	Rows        uint64 `json:"rows"`                  // observations in the log
	Interrupted bool   `json:"interrupted,omitempty"` // the source has more, which the job did not read
}

// Limits of the entries of a swarm whose agents are addressed.
const (
	// MaxTicks is the largest number of ticks of one entry. An agent process that ends within an
	// entry repeats the whole entry.
	MaxTicks = 10_000
	// MaxAddressed is the largest number of agents or groups of one entry. It bounds the size of
	// the answer.
	MaxAddressed = 65_536
	// MaxState is the largest answer to a query, in bytes of its columns. It is less than the
	// largest message.
	MaxState = 960 << 10
)

// Tick steps all agents of a swarm, each with the inputs that it has.
type Tick struct {
	Version int `json:"v"`
	Count   int `json:"count"` // steps, 1 to MaxTicks
	// Sums are the sums of the knowledge nodes of all shards, for one step of a swarm whose nodes
	// have agents of several shards; see NodeSums. Other swarms take none.
	Sums []byte `json:"sums,omitempty"`
}

// Ticked is the state of a swarm after the last step of a Tick. Slices have an element per
// candidate, in the order of the specification.
type Ticked struct {
	Version int      `json:"v"`
	Stepped uint64   `json:"stepped"` // steps of agents
	Tally   []uint64 `json:"tally"`   // agents that vote for each candidate
	Decided []uint64 `json:"decided"` // groups that have decided for each candidate
	// Undecided is the number of groups that have not met the rule.
	Undecided uint64 `json:"undecided"`
	// Sums are the sums of the knowledge nodes behind a step that took sums; see NodeSums.Words.
	Sums []byte `json:"sums,omitempty"`
	// Tokens are what conversations have made, step after step, by agent in each. Active is how many
	// conversations read or make tokens in the next step.
	Tokens []TokenRow `json:"tokens,omitempty"`
	Active int        `json:"active,omitempty"`
}

// Query asks for the state of agents, or of groups, for the outcome of the last round, or for the
// sums of knowledge nodes, and is read-only. The answer has the order of the ids. Exactly one of
// these is asked for, with at most MaxAddressed ids.
type Query struct {
	Version int      `json:"v"`
	Agents  []uint32 `json:"agents,omitempty"` // ids
	Groups  []uint32 `json:"groups,omitempty"` // ids
	// Outcome asks for the outcome; the answer is an EntryOutcome, with round 0 before the first
	// round.
	Outcome bool `json:"outcome,omitempty"`
	// Knowledge asks for knowledge nodes, and Groups has their numbers: numbers of groups, unless a
	// swarm has a number of nodes. The answer is an EntryKnown.
	Knowledge bool `json:"knowledge,omitempty"`
	// Sums asks for the sums from which the next tick makes all knowledge nodes. The answer is an
	// EntrySums.
	Sums bool `json:"sums,omitempty"`
	// Text asks for the tokens of a conversation. The answer is an EntryText.
	Text *TextRange `json:"text,omitempty"`
}

// Snapshot asks for a snapshot of all agents after all entries before it. It is read-only.
type Snapshot struct {
	Version int    `json:"v"`
	Name    string `json:"name"` // of the snapshot, an id
}

// Snapshotted reports that a snapshot is complete and durable.
type Snapshotted struct {
	Version int    `json:"v"`
	Name    string `json:"name"`   // for one of several shards the name of its part
	Entry   uint64 `json:"entry"`  // the number of the entry that asked for it
	Agents  int64  `json:"agents"` // agents of the shard
	Groups  int    `json:"groups"` // groups of the shard
	Bytes   int64  `json:"bytes"`  // size of its files
	SHA256  string `json:"sha256"` // of its manifest, 64 hexadecimal digits
}

// Reset resets all agents of a swarm to their initial state, also in a swarm that began with a
// snapshot.
type Reset struct {
	Version int `json:"v"`
}

// DecodeSnapshot reads the data of an EntrySnapshot, as DecodeTick does.
func DecodeSnapshot(data []byte) (s Snapshot, err error) {
	if err := decodeEntry("snapshot", data, &s, &s.Version); err != nil {
		return s, err
	}
	return s, jobs.CheckID("snapshot", s.Name)
}

// DecodeSnapshotted reads the data of an EntrySnapshotted.
func DecodeSnapshotted(data []byte) (s Snapshotted, err error) {
	return s, decodeEntry("snapshotted", data, &s, &s.Version)
}

// DecodeReset reads the data of an EntryReset or EntryCleared, as DecodeTick does.
func DecodeReset(data []byte) (r Reset, err error) {
	return r, decodeEntry("reset", data, &r, &r.Version)
}

// DecodeTick reads the data of an EntryTick. For any bytes it returns a Tick within its limits, or
// a *jobs.Error with jobs.CodeInvalid or jobs.CodeVersion.
func DecodeTick(data []byte) (t Tick, err error) {
	if err := decodeEntry("tick", data, &t, &t.Version); err != nil {
		return t, err
	}
	if t.Count < 1 || t.Count > MaxTicks {
		return t, invalid("tick: count %d: use 1 to %d", t.Count, MaxTicks)
	}
	if t.Count > 1 && t.Sums != nil {
		return t, invalid("tick: count %d with sums: they are for one step: use count 1", t.Count)
	}
	return t, nil
}

// DecodeQuery reads the data of an EntryQuery, as DecodeTick does.
func DecodeQuery(data []byte) (q Query, err error) {
	if err := decodeEntry("query", data, &q, &q.Version); err != nil {
		return q, err
	}
	if q.Text != nil {
		if q.Outcome || q.Sums || q.Knowledge || len(q.Agents)+len(q.Groups) > 0 {
			return q, invalid("query: it asks for the text of agent %d and for others: ask for one of them",
				q.Text.Agent)
		}
		if q.Text.From < 0 {
			return q, invalid("query: text from %d on: use 0 or more", q.Text.From)
		}
		return q, nil
	}
	if (q.Outcome || q.Sums) && len(q.Agents)+len(q.Groups) > 0 {
		return q, invalid("query: it names %d agents and %d groups beside the outcome or the sums: ask for one of "+
			"them", len(q.Agents), len(q.Groups))
	}
	if q.Sums && (q.Outcome || q.Knowledge) {
		return q, invalid("query: it asks for sums and for others: ask for one of them")
	}
	if !q.Outcome && !q.Sums && (len(q.Agents) == 0) == (len(q.Groups) == 0) {
		return q, invalid("query: it names %d agents and %d groups: name some of one kind", len(q.Agents),
			len(q.Groups))
	}
	if q.Knowledge && len(q.Groups) == 0 {
		return q, invalid("query: knowledge of no group: name the groups")
	}
	if n := len(q.Agents) + len(q.Groups); n > MaxAddressed {
		return q, invalid("query: %d ids: ask for at most %d at a time", n, MaxAddressed)
	}
	return q, nil
}

// DecodeTicked reads the data of an EntryTicked.
func DecodeTicked(data []byte) (t Ticked, err error) {
	return t, decodeEntry("ticked", data, &t, &t.Version)
}

// decodeEntry decodes JSON of this version into v. It refuses fields that v does not have.
func decodeEntry(kind string, data []byte, v any, version *int) error {
	if err := jobs.CheckJSON(data); err != nil {
		return &jobs.Error{Code: jobs.CodeInvalid, Message: kind + ": " + err.Error()}
	}
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return invalid("%s: %v", kind, err)
	}
	if head.Version != jobs.Version {
		return jobs.Errorf(jobs.CodeVersion, "%s: it speaks protocol version %d, this side %d: update the older "+
			"side", kind, head.Version, jobs.Version)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return invalid("%s: %v", kind, err)
	}
	*version = head.Version
	return nil
}
