// Package swarmlog keeps the state of swarms on the server: their records, the logs of their
// shards, and the leases of the agents that serve them. It implements package swarms.
//
// # What must hold
//
// A log has one writer at a time. Every append carries the number of the last entry that its writer
// knows, and the server refuses it if that is not the last entry. This alone keeps a log correct.
// Leases, sessions and clocks only prevent double work.
//
// A swarm has its record before its logs, and loses its logs before its record. So a log without a
// record belongs to a swarm that was removed, and its name (swarms.Swarm.Key) is never used again.
//
// The clocks of two processes are never compared. A process takes another one for dead when its
// record did not change for a whole ttl of the observer's own reads, and then removes the record at
// the revision that it has read. The removal fails if the other process is alive after all. A time
// without the server restarts the wait.
//
// # Who calls what
//
//   - Clients and CPU agents create, change and remove records, and append to logs.
//   - A GPU agent watches the records, opens one Session, acquires the leases of shards under it,
//     reads the log of entries and appends to the log of answers. While a shard is parked, Wakes
//     tells it about new entries.
//   - Agents sweep orphans; operators list and remove them, and move shards with PlanMoves,
//     OfferMoves and FollowMoves.
//
// # Replicas
//
// A caller that decides by the end of a log asks the leader of its stream, because another replica
// may be behind. Even the leader can be behind for some seconds after an election, so a log that is
// too short is asked again before it counts as one that was restored to an earlier state.
package swarmlog
