package jobs

import (
	"context"
	"encoding/json"
	"time"
)

// Log is one ordered log. Any number may read it; who appends says which entry it follows, so two
// writers never interleave. Methods may be called from several goroutines.
type Log interface {
	// Create makes the log unless it exists, with the consistency of its swarm where that is given.
	// What the server cannot give is refused with CodeInvalid.
	Create(ctx context.Context, of ...Consistency) error
	// Delete removes the log and everything in it. A log that is not there is no error.
	Delete(ctx context.Context) error
	// Append adds entries in their order, the first right behind entry number after (0 for an empty
	// log), and returns when all are stored. It fails with ErrFenced when another writer has
	// appended since. After an error the first few of them may be stored, never one without those
	// before it. The same call may be repeated after ErrUnavailable: entries that did get through
	// are found again and not stored twice. Data is not kept. Of an entry with a Trace that is the
	// one it is stored in, of others that of ctx.
	Append(ctx context.Context, after uint64, entries ...Entry) error
	// Last returns the last entry, or one with Seq 0 when the log is empty. ErrNotFound when there
	// is no such log. On a cluster it may return an earlier entry than a Reader has returned, or
	// than an Append has stored before a leader was replaced: the leader answers with what it has
	// applied, and a replica may be ahead of it for a moment. Who concludes something from a log
	// that is too short asks again for some seconds.
	Last(ctx context.Context) (Entry, error)
	// Read starts at entry number from (1 is the first) and goes on with what is appended later.
	// The caller closes the reader.
	Read(ctx context.Context, from uint64) (Reader, error)
	// Trim removes the entries before number first.
	Trim(ctx context.Context, first uint64) error
}

// Reader reads a log in order. One goroutine uses it.
type Reader interface {
	// Next waits for the next entry, whose Data belongs to the caller. It fails with ErrNotFound
	// when the log was deleted, and with ctx's cause when ctx ends.
	Next(ctx context.Context) (Entry, error)
	// Close ends the reading. A second call does nothing.
	Close()
}

// Direction tells a shard's two logs apart.
type Direction string

// In carries observations to the shard, Out its decisions.
const (
	In  Direction = "in"
	Out Direction = "out"
)

// Session is the presence of an agent: one record that it renews, and the leases that it holds
// under it. Its methods may be called from several goroutines.
type Session interface {
	// Acquire takes the lease named key. It fails with ErrHeld while another session holds it,
	// without a question to the server where that is known, and with ErrFenced after the session
	// was lost.
	Acquire(ctx context.Context, key string) (Lease, error)
	// Freed returns a channel that is closed when a lease that another session held may have come
	// free since the call, or an offer of this session or to it has changed.
	Freed() <-chan struct{}
	// Peers lists the sessions that there are, this one too, as they were last read.
	Peers() []Peer
	// Offers lists the leases that this session offers and those that are offered to it, as they
	// were last read.
	Offers() []Offer
	// Offer offers a lease of this session to another one, which may follow its shard. It fails
	// with ErrFenced when the lease has changed.
	Offer(ctx context.Context, key, to string) error
	// Ready tells the holder of a lease that is offered to this session that its shard was followed
	// up to the last answer.
	Ready(ctx context.Context, key string) error
	// Withdraw ends an offer of this session or to it. An offer that is not there is no error.
	Withdraw(ctx context.Context, key string) error
	// Hand writes a lease of this session in the name of the session that it is offered to. Nothing
	// may serve the shard any more. After an error it is still this session's, if it was not lost.
	Hand(ctx context.Context, key string) error
	// Lost is closed when another process has ended the session, because it was not renewed in
	// time, or when it cannot be renewed any more. All its leases are lost then. A server that is
	// away is waited for: nobody else can take a lease meanwhile.
	Lost() <-chan struct{}
	// Close ends the session, which gives back all its leases at once. A second call does nothing
	// and returns what the first did.
	Close(ctx context.Context) error
}

// Peer is a session as others see it.
type Peer struct {
	Session string `json:"session"`
	Holder  string `json:"holder"` // its agent
	Leases  int    `json:"leases"` // that it holds and does not offer, and that are offered to it
	Takes   bool   `json:"takes"`  // it takes part in hand-overs
	Own     bool   `json:"own"`    // it is the one that was asked
}

// Offer is a lease that is to go from one session to another.
type Offer struct {
	Key      string
	From, To string // sessions
	Own      bool   // From is the session that was asked; else To is
	Ready    bool   // the agent of To has followed the shard up to the last answer
}

// Lease is the right to serve one shard, as long as its session lasts. It keeps work from being
// done twice; what keeps it from taking effect twice is the expected position of every append.
type Lease interface {
	// Lost is closed when another process may hold the lease.
	Lost() <-chan struct{}
	// Release gives the lease back. A second call does nothing.
	Release(ctx context.Context) error
}

// Wakes tells of logs that others append to, for readers that have no consumer of their own. Its
// methods may be called from several goroutines.
type Wakes interface {
	// Add watches a log under a key until Next has returned that key or Remove was called. It is
	// returned at once when the last entry of the log is not number last.
	Add(ctx context.Context, key string, l Log, last uint64) error
	// Remove ends the watch of a key. A key that is not watched is no error.
	Remove(key string)
	// Next waits for a log whose last entry is another than it was, or that is gone, and returns
	// its key. It fails with ctx's cause.
	Next(ctx context.Context) (key string, err error)
	// Close ends all watches. A second call does nothing.
	Close()
}

// SwarmChange says that a swarm is there, or that no swarm of the id is there any more. A swarm
// that is being removed is gone.
type SwarmChange struct {
	ID    string
	Gone  bool
	Swarm Swarm // when it is there
	Err   error // when its record cannot be read
}

// DeadLetter is a job that failed for good, or a message that is no job, with what is known of its
// end.
type DeadLetter struct {
	Seq      uint64    `json:"seq"` // its place among the dead letters
	ID       string    `json:"id"`  // of the job, or one made from the message when that has none
	Pool     Pool      `json:"pool"`
	Kind     string    `json:"kind"`
	Tenant   string    `json:"tenant"`
	Reason   *Error    `json:"reason"`
	Attempts int       `json:"attempts"`
	Worker   string    `json:"worker"`
	Died     time.Time `json:"died"` // by the server's clock
	Data     []byte    `json:"data"` // the message as it was
}

// DeadFilter selects dead letters; an empty field selects all.
type DeadFilter struct {
	Pool             Pool
	Kind, Tenant, ID string
}

// QueueStats is the state of one pool's queue.
type QueueStats struct {
	Pool    Pool          `json:"pool"`
	Jobs    uint64        `json:"jobs"`  // queued, running or waiting for a retry
	Bytes   uint64        `json:"bytes"` // of their messages
	Paused  bool          `json:"paused"`
	Oldest  time.Time     `json:"oldest,omitzero"` // when the oldest of them was stored; zero when there is none
	Sources []SourceStats `json:"sources"`         // by kind, lane and tenant, in this order
}

// SourceStats is the state of the jobs of one kind, lane and tenant.
type SourceStats struct {
	Kind    string `json:"kind"`
	Lane    Lane   `json:"lane"`
	Tenant  string `json:"tenant"`
	Waiting uint64 `json:"waiting"` // no worker has had them
	Running int    `json:"running"` // with a worker, or waiting for a retry
	Retried int    `json:"retried"` // of the running, those that a worker had before
	Paused  bool   `json:"paused"`  // the kind is
	Agents  int    `json:"agents"`  // agents that say that they do the kind
}

// Running is a job that a worker has at hand.
type Running struct {
	JobID    string          `json:"job"`
	Worker   string          `json:"worker"`
	Attempt  int             `json:"attempt"` // 1 is the first
	Since    time.Time       `json:"since"`   // when this attempt began, by the worker's clock
	Progress json.RawMessage `json:"progress,omitempty"`
}

// Room is what a GPU agent can hold of swarms' pages, in bytes, whether it is in use or not.
type Room struct {
	Shard int64 `json:"shard"` // memory for one shard: the most that one of its devices has
	All   int64 `json:"all"`   // memory for all shards together
	// free memory of one device now, the most of them; nil: an earlier version, which does not say
	Free *int64 `json:"free,omitempty"`
	Disk int64  `json:"disk,omitempty"` // free on its disks, for pages that are not in memory; 0: it has none
}

// Agent is what an agent process says of itself.
type Agent struct {
	Version int      `json:"v"`
	Name    string   `json:"name"`
	Pool    Pool     `json:"pool"`
	Kinds   []string `json:"kinds,omitempty"` // of jobs that it does
	// the model of its accelerator; of several, the models with their names
	Device      string `json:"device,omitempty"`
	Fallback    string `json:"fallback,omitempty"` // why --device auto chose the host device; empty where it did not
	Memory      int64  `json:"memory,omitempty"`   // bytes of the device that it may use
	Room        *Room  `json:"room,omitempty"`     // of a GPU agent: for pages of swarms; nil: it does not say
	Concurrency int    `json:"concurrency,omitempty"`
	Running     int    `json:"running"`              // jobs and batches now, on a GPU agent shards
	Parked      int    `json:"parked,omitempty"`     // of the shards, those that wait for an entry in their log
	MaxShards   int    `json:"max_shards,omitempty"` // how many shards a GPU agent takes
	// serving, full or draining; reduced, host or emergency on a GPU agent whose device fails, of
	// several with its name; AgentLost of one that is gone
	State   string    `json:"state"`
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen,omitzero"` // its last announcement, by the server's clock
	// Recovering are the shards that a GPU agent replays now.
	Recovering []Recovery `json:"recovering,omitempty"`
	// Lost is what an agent held that is gone; nil: it is there.
	Lost *Lost `json:"lost,omitempty"`
}
