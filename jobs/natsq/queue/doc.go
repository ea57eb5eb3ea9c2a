// Package queue submits jobs and follows them until they end: dependencies, delays, cancellations,
// lists, schedules, results, dead letters and log lines. It executes none.
//
// # The way of a job
//
// A job is one message. It moves forwards through these places, and each is a stream or a part of
// one:
//
//   - waiting: in wire.WaitStream, while a parent has not ended (depend.go, resolve.go);
//   - delayed: in wire.SchedStream, until its time (delay.go);
//   - queued: in the stream of its pool, until a worker has stored its result;
//   - ended: in wire.ResultStream, for as long as the result is kept.
//
// The message is written to the next place before it is removed from the present one. So a process
// may die between the two, another process repeats the move, and a reader that checks the places in
// this order finds the job. Only a redrive of a dead letter moves a job back.
//
// # What makes a repeated call safe
//
// The last token of a subject is the id of the job, and a stream keeps one message per subject. So
// the server refuses a second copy of a job in one place, and the caller gets jobs.ErrExists. A
// caller that gets jobs.ErrUnavailable may repeat the call: if the first call stored the job, the
// repeated one reports jobs.ErrExists. The first result of an id is final, so a job that is in two
// places for a moment has one outcome.
//
// # Who runs what
//
// Clients and the gateway call the methods of Queue. Every worker runs one Mover and one Resolver.
// They share their consumers on the server, so each delayed or waiting job goes to one of them, and
// any of them may be missing.
//
// # Bounds
//
// A queue refuses a job when its stream is full (jobs.ErrFull); it never drops one. A batch has at
// most jobs.MaxBatch messages, because it is one atomic batch of the server. A specification of
// more than jobs.MaxInline bytes is an object, and its job has the digest. Lists and dead letters
// are read one message at a time, so they need no memory in proportion to the queue; only
// Queue.SourcesOf reads all subjects of a pool at once.
//
// # Order of the steps
//
// A cancellation is marked first, then the job is withdrawn, and then it gets its result: a worker
// that receives the job in between sees the mark. A job with parents is stored in one atomic batch
// with its edges. A removal takes the job first and the edges afterwards. So an edge may be left
// without its job, but a job that must wait always has its edges.
package queue
