package jobs

import (
	"encoding/json"
	"time"
)

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
	Died     time.Time `json:"died"`            // by the server's clock
	Data     []byte    `json:"data"`            // the message as it was
	Level    Level     `json:"level,omitempty"` // that the job asked for
}

// DeadFilter selects dead letters; an empty field selects all.
type DeadFilter struct {
	Pool             Pool
	Kind, Tenant, ID string
}

// QueueStats is the state of one pool's queue.
type QueueStats struct {
	Pool  Pool   `json:"pool"`
	Jobs  uint64 `json:"jobs"`  // queued, running or waiting for a retry
	Bytes uint64 `json:"bytes"` // of their messages
	// Delayed jobs wait for their time, and Dependent ones for other jobs. Jobs does not count them.
	Delayed   uint64        `json:"delayed"`
	Dependent uint64        `json:"dependent"`
	Paused    bool          `json:"paused"`
	Oldest    time.Time     `json:"oldest,omitzero"` // when the oldest of them was stored; zero when there is none
	Sources   []SourceStats `json:"sources"`         // by kind, lane, tenant and level, in this order
}

// SourceStats is the state of the jobs of one kind, lane, tenant and level.
type SourceStats struct {
	Kind    string `json:"kind"`
	Lane    Lane   `json:"lane"`
	Tenant  string `json:"tenant"`
	Level   Level  `json:"level,omitempty"` // empty: the default of the cluster
	Waiting uint64 `json:"waiting"`         // no worker has had them
	Running int    `json:"running"`         // with a worker, or waiting for a retry
	Retried int    `json:"retried"`         // running jobs that a worker had before
	Paused  bool   `json:"paused"`          // the kind is
	Agents  int    `json:"agents"`          // agents that announce the kind
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
	Shard int64 `json:"shard"` // memory for one shard: the maximum over its devices
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
	// Levels are the levels of jobs that it does, without the default. Earlier versions have none.
	Levels []Level `json:"levels,omitempty"`
	// the model of its accelerator; of several, the models with their names
	Device      string `json:"device,omitempty"`
	Fallback    string `json:"fallback,omitempty"` // why --device auto chose the host device; empty where it did not
	Memory      int64  `json:"memory,omitempty"`   // bytes of the device that it may use
	Room        *Room  `json:"room,omitempty"`     // of a GPU agent: for pages of swarms; nil: it does not say
	Concurrency int    `json:"concurrency,omitempty"`
	Running     int    `json:"running"` // jobs and batches now, on a GPU agent shards
	// JobSlots is how many jobs and batches a GPU agent runs at once, and JobsRunning how many of them
	// run; 0: it takes no jobs.
	JobSlots    int `json:"job_slots,omitempty"`
	JobsRunning int `json:"jobs_running,omitempty"`
	Parked      int `json:"parked,omitempty"`     // shards that wait for an entry in their log
	MaxShards   int `json:"max_shards,omitempty"` // how many shards a GPU agent takes
	// serving, full or draining; reduced, host or emergency on a GPU agent whose device fails, of
	// several with its name; AgentLost of one that is gone
	State   string    `json:"state"`
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen,omitzero"` // its last announcement, by the server's clock
	// Recovering are the shards that a GPU agent replays now.
	Recovering []Recovery `json:"recovering,omitempty"`
	// Teams are the shards of a GPU agent whose ticks several of its devices make.
	Teams []Team `json:"teams,omitempty"`
	// Lost is what an agent held that is gone; nil: it is there.
	Lost *Lost `json:"lost,omitempty"`
}

// Slots returns how many jobs and batches the agent runs, and how many it runs at most; 0: it does
// not say.
func (a *Agent) Slots() (taken, all int) {
	if a.Pool == PoolGPU {
		return a.JobsRunning, a.JobSlots
	}
	return a.Running, a.Concurrency
}
