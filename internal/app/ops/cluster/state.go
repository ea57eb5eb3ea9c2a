// Package cluster observes a running cluster: it polls queues, agents, swarms and the NATS servers
// once a second, however many people watch, and keeps a history of the numbers.
package cluster

import (
	"encoding/json"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// State is the cluster at one moment. Slices are sorted by name and must not be changed. The HTTP
// API has the same JSON.
type State struct {
	// Frame counts the polls of this process, from 1 on.
	Frame uint64    `json:"frame"`
	At    time.Time `json:"at"`
	// Error says why the last poll failed. The State then has what the last successful poll found,
	// at time Since.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`

	NATS    telemetry.ServerReport `json:"nats"`
	Pools   []Pool                 `json:"pools"`
	Agents  []Agent                `json:"agents"`
	Swarms  []Swarm                `json:"swarms"`
	Tenants []Tenant               `json:"tenants"`
	// Watches are the detectors, the runs, and the runs that ended within an hour. Incidents are what
	// they found, the newest first; the open ones have no end.
	Watches   []Watch    `json:"watches"`
	Incidents []Incident `json:"incidents"`
	// Numbers are the series of Series at this moment, by name. Rates are per second.
	Numbers map[string]float64 `json:"numbers"`
}

// Pool is the queue of a pool of agents. Its sources are sorted by kind, lane, tenant
// and level.
type Pool struct {
	jobs.QueueStats
	// Unserved are the kinds that have jobs and no agent.
	Unserved []string `json:"unserved,omitempty"`
}

// Agent is an agent of the cluster, alive or lost.
type Agent struct {
	jobs.Agent
	// Telemetry is what the agent answered; nil: it did not answer this time.
	Telemetry *jobs.Telemetry `json:"telemetry,omitempty"`
	// Heard is the time on this machine at which the answers to that question were there. Agents
	// are asked less often than the cluster is polled.
	Heard time.Time `json:"heard,omitzero"`
}

// Swarm is a swarm of the cluster.
type Swarm struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Title is the name, and of a run also what it reads.
	Title     string `json:"title"`
	Key       string `json:"key"`
	Cell      string `json:"cell"`
	Addressed string `json:"addressed"` // agent or group
	Agents    int64  `json:"agents"`
	// Candidates are the candidates of votes, in the order of their numbers.
	Candidates []string        `json:"candidates,omitempty"`
	Groups     int             `json:"groups"`
	Owner      string          `json:"owner,omitempty"` // the job that it ends with
	Created    time.Time       `json:"created"`
	Ending     bool            `json:"ending,omitempty"`
	Error      string          `json:"error,omitempty"` // why its record cannot be read
	State      string          `json:"state"`           // served, replaying, waiting, or ending
	Shards     []Shard         `json:"shards"`
	Spec       json.RawMessage `json:"spec,omitempty"`
}

// Shard is a part of a swarm's groups.
type Shard struct {
	Shard  int    `json:"shard"`
	First  int    `json:"first_group"`
	End    int    `json:"end_group"` // behind the last one
	Holder string `json:"holder,omitempty"`
	State  string `json:"state"` // served, replaying or waiting
	// Entries is the number of the last entry of its log, Answered of the last one with an answer.
	Entries  uint64 `json:"entries"`
	Answered uint64 `json:"answered"`
	// EntriesPerSecond is the rate at which entries were answered since the previous poll.
	EntriesPerSecond float64        `json:"entries_per_second"`
	Recovering       *jobs.Recovery `json:"recovering,omitempty"`
	// Devices are the devices of the agent that step the shard, if there are several.
	Devices []string `json:"devices,omitempty"`
	// Leaderless names the log of the shard that has no leader.
	Leaderless string    `json:"leaderless,omitempty"`
	LostHolder string    `json:"lost_holder,omitempty"`
	LostSince  time.Time `json:"lost_since,omitzero"`
}

// Tenant is a tenant with jobs or limits.
type Tenant struct {
	Tenant  string             `json:"tenant"`
	Waiting uint64             `json:"waiting"`
	Running int                `json:"running"`
	Limits  *jobs.TenantLimits `json:"limits,omitempty"`
}

// States of swarms and shards.
const (
	StateServed    = "served"
	StateReplaying = "replaying"
	StateWaiting   = "waiting"
	StateEnding    = "ending"
)
