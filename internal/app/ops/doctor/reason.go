package doctor

// Cause is why something does not progress. Its text is stable: scripts compare it.
type Cause string

// Causes of jobs.
const (
	Running        Cause = "running"           // it progresses
	Done           Cause = "done"              // it is over, with a result
	NoAgent        Cause = "no_agent_of_kind"  // no agent has a handler for its kind
	AgentsFull     Cause = "agents_full"       // all agents of its kind are at their limit
	QueuedBehind   Cause = "queued"            // agents are free or will be: earlier jobs wait too
	PoolPaused     Cause = "pool_paused"       // an operator paused its pool
	KindPaused     Cause = "kind_paused"       // an operator paused its kind
	TenantLimit    Cause = "tenant_limit"      // its tenant runs, or starts, as many jobs as it may
	Parents        Cause = "waiting_for_jobs"  // jobs that it waits for are not over
	Delayed        Cause = "delayed"           // its time has not come
	RetryBackoff   Cause = "retry_backoff"     // an attempt failed, and the next one waits
	LeaseOfDead    Cause = "lease_of_dead"     // its worker is gone, and the lease has not ended
	Poisoned       Cause = "dead_letter"       // it failed for good
	Skipped        Cause = "skipped"           // a job that it waited for was not done
	Cancelled      Cause = "cancelled"         // somebody cancelled it
	Expired        Cause = "expired"           // its deadline has passed
	Unknown        Cause = "unknown_id"        // nothing is known of it
	NoConnection   Cause = "nats_unreachable"  // the NATS server does not answer
	NoLeader       Cause = "nats_no_leader"    // a stream that it needs has no leader
	DiskFull       Cause = "disk_full"         // a NATS server refuses to store
	StreamFull     Cause = "stream_full"       // a stream that it needs is at its limit
	AgentsDraining Cause = "agents_draining"   // all agents of its kind take nothing new
	AgentTrouble   Cause = "agent_not_serving" // all agents of its kind say that they cannot work
)

// Causes of swarms. A swarm also has NoConnection, NoLeader, DiskFull and StreamFull.
const (
	Idle       Cause = "idle"               // every entry is answered
	Serving    Cause = "serving"            // entries are being answered
	Unserved   Cause = "shard_unserved"     // no GPU agent holds a shard
	NoGPUAgent Cause = "no_gpu_agent"       // there is no GPU agent
	GPUFull    Cause = "gpu_agents_full"    // all GPU agents hold as many shards as they can
	HolderLost Cause = "holder_lost"        // the agent of a shard is gone, and its lease has not ended
	Replaying  Cause = "replaying"          // an agent repeats the entries that were answered before
	DeviceFail Cause = "device_failed"      // the device of the holder has failed
	Degraded   Cause = "device_degraded"    // the device works more slowly, or the host stands in
	Stalled    Cause = "stalled"            // entries wait, the holder is alive, and none is answered
	Ending     Cause = "ending"             // it is being removed
	BadRecord  Cause = "record_unreadable"  // its record cannot be read
	NoSwarm    Cause = "unknown_swarm"      // there is no swarm of that name
	Rejected   Cause = "entries_rejected"   // its last entries were answered with an error
	OwnerWaits Cause = "owner_not_progress" // its run does not feed it
)

// Causes of detectors. A detector also has the causes of its job and its swarm.
const (
	NoDetector     Cause = "unknown_detector"   // there is no detector of that name
	DetectorPaused Cause = "detector_paused"    // an operator paused it
	DetectorFailed Cause = "detector_failed"    // its last job failed for a cause that stays
	SourceAway     Cause = "source_unreachable" // a source cannot be read
	SinkAway       Cause = "sink_unreachable"   // a sink does not take decisions
	RowsRejected   Cause = "rows_rejected"      // all its rows are rejected
)

// Reason is the answer to "why does it not progress".
type Reason struct {
	Cause Cause `json:"cause"`
	// Stuck says that nothing changes unless somebody acts.
	Stuck bool `json:"stuck"`
	// Sentence is the answer, Evidence the facts behind it, and Cure what to do; an empty cure:
	// nothing.
	Sentence string   `json:"sentence"`
	Evidence []string `json:"evidence,omitempty"`
	Cure     string   `json:"cure,omitempty"`
}
