package swarms

import (
	"bytes"
	"encoding/json"

	"github.com/exoswarm/exoswarm/jobs"
)

// Entry is one message of a log.
type Entry struct {
	Seq  uint64 // position in its log, from 1, without gaps
	Kind string // what Data is
	// Ref ties an entry to what caused it: in a log of results the Seq of the entry that it
	// answers, in a log of observations the number of the batch in its source, from 1.
	Ref  uint64
	Data []byte
	// Trace is that of whoever appended it. Append takes that of its context where there is none.
	Trace jobs.Trace
	// Behind is how many entries stood behind it in its log when a Reader was handed it; it is not
	// stored.
	Behind uint64
}

// The kinds of entry.
const (
	EntryObserve  = "observe"  // a batch of observations, Arrow IPC
	EntryDecide   = "decide"   // their decisions, Arrow IPC
	EntryEnd      = "end"      // nothing follows; EndOfInput as JSON
	EntryRejected = "rejected" // the entry named by Ref could not be applied; Error as JSON

	// Of swarms whose agents are addressed: observe and decide are of agents there.
	EntryTick   = "tick"   // all agents step; Tick as JSON
	EntryTicked = "ticked" // they have; Ticked as JSON
	EntryQuery  = "query"  // what agents or groups are; Query as JSON
	EntryState  = "state"  // its answer, Arrow IPC
	EntryVote   = "vote"   // how all agents vote now; Vote as JSON
	EntryVoted  = "voted"  // what they have decided; Voted as JSON
	EntryFuse   = "fuse"   // what agents know together; Fuse as JSON
	EntryFused  = "fused"  // the nodes, Arrow IPC

	// Of all swarms.
	EntrySnapshot    = "snapshot"    // what all agents are is to be kept; Snapshot as JSON
	EntrySnapshotted = "snapshotted" // it is; Snapshotted as JSON
	EntryReset       = "reset"       // all agents become such as have seen nothing; Reset as JSON
	EntryCleared     = "cleared"     // they have; Reset as JSON
)

// Asks says that an entry of a kind changes nothing of the agents: who replays one that has an
// answer skips it, and a stream that writes a log lets others put such entries between its own.
func Asks(kind string) bool {
	switch kind {
	case EntryQuery, EntryVote, EntryFuse, EntrySnapshot:
		return true
	}
	return false
}

// EndOfInput closes a log of observations, and travels on into the log of results.
type EndOfInput struct {
	Rows        uint64 `json:"rows"` // observations sent
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Limits of the entries of a swarm whose agents are addressed.
const (
	// MaxTicks bounds the ticks of an entry: an agent process that ends in the middle of one begins
	// it anew.
	MaxTicks = 10_000
	// MaxAddressed bounds the agents or groups that an entry names, which bounds what its answer
	// takes.
	MaxAddressed = 65_536
	// MaxState is the largest answer to a query in bytes of its columns: it is less than a message
	// takes.
	MaxState = 960 << 10
)

// Tick has all agents of a swarm step, each driven by the inputs that it holds.
type Tick struct {
	Version int `json:"v"`
	Count   int `json:"count"` // steps, 1 to MaxTicks
}

// Ticked says what the swarm is after the last step of a Tick. Candidates are by their index in the
// spec.
type Ticked struct {
	Version int      `json:"v"`
	Stepped uint64   `json:"stepped"` // steps of agents
	Tally   []uint64 `json:"tally"`   // agents that vote for each candidate
	Decided []uint64 `json:"decided"` // groups that have decided for each candidate
	// Undecided is how many groups have not met the rule.
	Undecided uint64 `json:"undecided"`
}

// Query asks for the state of agents or of groups, in any order. It changes nothing.
type Query struct {
	Version int      `json:"v"`
	Agents  []uint32 `json:"agents,omitempty"` // up to MaxAddressed ids; or
	Groups  []uint32 `json:"groups,omitempty"` // the same
}

// Snapshot asks for a snapshot of all agents as the entries before it have made them. It changes
// nothing of them.
type Snapshot struct {
	Version int    `json:"v"`
	Name    string `json:"name"` // of the snapshot, an id
}

// Snapshotted says that a snapshot is complete and durable.
type Snapshotted struct {
	Version int    `json:"v"`
	Name    string `json:"name"`   // of one shard of several that of its part
	Entry   uint64 `json:"entry"`  // of the log, that asked for it
	Agents  int64  `json:"agents"` // all of the shard
	Groups  int    `json:"groups"`
	Bytes   int64  `json:"bytes"`  // of its files
	SHA256  string `json:"sha256"` // of its manifest
}

// Reset makes all agents of a swarm such as have seen nothing, also those of a swarm that was made
// from a snapshot.
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

// DecodeTick reads the data of an EntryTick. Whatever the bytes are, the answer is a Tick within
// its limits or an Error of jobs.CodeInvalid or jobs.CodeVersion.
func DecodeTick(data []byte) (t Tick, err error) {
	if err := decodeEntry("tick", data, &t, &t.Version); err != nil {
		return t, err
	}
	if t.Count < 1 || t.Count > MaxTicks {
		return t, invalid("tick: count %d: use 1 to %d", t.Count, MaxTicks)
	}
	return t, nil
}

// DecodeQuery reads the data of an EntryQuery, as DecodeTick does.
func DecodeQuery(data []byte) (q Query, err error) {
	if err := decodeEntry("query", data, &q, &q.Version); err != nil {
		return q, err
	}
	if (len(q.Agents) == 0) == (len(q.Groups) == 0) {
		return q, invalid("query: it names %d agents and %d groups: name some of one kind", len(q.Agents),
			len(q.Groups))
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

// decodeEntry reads JSON of this version that has no other fields than v has.
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
