package jobs

import "context"

// Subscription selects messages of a stream that is not the queue's.
type Subscription struct {
	Stream, Subject string
	// Push names what was pushed to an endpoint of CPU agents; Stream and Subject are empty then.
	Push string
	// Consumer is the durable consumer's name. Keep reports whether it outlives the job; otherwise
	// the server forgets it after a day of silence.
	Consumer string
	Keep     bool
	// Owner is the job that reads. A consumer that outlives it is its tenant's. The consumer of
	// another owner is neither used nor removed.
	Owner Owner
	// New leaves out what was published before the consumer was first made.
	New bool
	// After is the number in the stream of the last stored message: messages up to it are
	// acknowledged and not returned.
	After uint64
	// Ahead is the largest number of unacknowledged messages, at least 1.
	Ahead int
}

// Published is a message of a stream.
type Published struct {
	Seq  uint64 // in the stream; it grows
	Data []byte
}

// Subscriber takes messages of a stream in its order. One goroutine uses it.
type Subscriber interface {
	// Next waits for the next message, whose Data belongs to the caller. It fails with ErrNotFound
	// when the stream is gone, with ErrFenced when another reader has taken over or removed the
	// consumer, and with ctx's cause when ctx ends.
	Next(ctx context.Context) (Published, error)
	// Ack acknowledges every message up to number seq that Next has returned. What gets lost on the
	// way comes again, and Next leaves it out.
	Ack(ctx context.Context, seq uint64)
	// Close ends the reading and keeps the consumer. A second call does nothing.
	Close()
}

// Publication is a message for a stream that is not the queue's own.
type Publication struct {
	Stream, Subject string
	// ID identifies it in the stream: a second message with the id is not stored, for as long as
	// the stream remembers the first.
	ID string
	// Type is the media type of Data; empty for none.
	Type string
	Data []byte
}
