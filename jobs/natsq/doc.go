// Package natsq implements the work queue of package jobs and the state of package swarms over NATS
// JetStream. It and the packages below it are the only importers of the NATS client. DESIGN.md has
// the design, and RFC 0028 the order of the packages.
//
// Connect returns a Conn, whose fields are the parts of the queue: Queue submits jobs, Results
// waits for them, Swarms keeps the state of swarms, and so on. Work starts a worker.
//
// # The worker
//
// A worker is one loop that fetches jobs, and one goroutine per running job or batch. These parts
// serve all jobs of the worker: heartbeat renews the leases, acks takes finished jobs out of the
// queue, limiter gets slots and tokens of tenants, queue.LogWriter stores log lines, and
// queue.Resolver moves waiting jobs on.
//
// The loop waits for a free slot and a source with jobs. sourceTable knows the sources that may
// have jobs, operatorState the paused sources, and limiter the sources whose tenant may use more.
// The fair queue chooses one of them. A worker fetches no more jobs than it can start at once, so
// that an idle job stays available to other workers.
//
// # The steps of a job
//
// For each delivery the worker takes these steps, and each may be repeated:
//
//  1. Worker.fetchFrom begins the heartbeat, takes the slot of the tenant, and tells acks of the
//     delivery.
//  2. Worker.open decodes the job, and settles a job that must not run.
//  3. The handler runs, with a context that ends with the deadline, a cancellation, the drain of the
//     worker, or the loss of the job.
//  4. Worker.conclude decides from the error and the cause of the context: settle, retry, give back,
//     or leave the job to its lease.
//  5. Worker.settle stores the result. The first result of a job is final; if another worker was
//     first, its result counts.
//  6. Worker.finished stores the dead letter if the job has one, and then removes the job from the
//     queue.
//  7. Worker.release ends the heartbeat and the slot. It is called for each delivery, whatever
//     happens.
//
// If the process dies between two steps, the lease of the job ends, the queue delivers it to
// another worker, which continues after the last stored step.
//
// # The end
//
// Drain ends the loop, gives running jobs back to the queue between two of their steps, and waits
// for their goroutines. Then the parts end in the opposite order of their start: the limiter
// returns slots before heartbeats stop, and acknowledgements are sent before the connection may be
// closed. The connection outlives all workers and gateways; the caller closes it last.
package natsq
