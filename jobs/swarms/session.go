package swarms

import "context"

// Session is the presence of an agent: one record that the agent renews, and the leases that it
// holds under this record. The methods may be called from several goroutines.
type Session interface {
	// Acquire takes the lease with a key. It fails with ErrHeld while another session holds it, if
	// possible without a request to the server, and with jobs.ErrFenced after the session was lost.
	Acquire(ctx context.Context, key string) (Lease, error)
	// Freed returns a channel that is closed when a lease of another session may have become free
	// since the call, when an offer from or to this session has changed, or when another session
	// begins to ask for shards.
	Freed() <-chan struct{}
	// Peers returns all sessions as they were last read, with this one.
	Peers() []Peer
	// Offers returns the leases that this session offers and the leases offered to it, as last
	// read.
	Offers() []Offer
	// Ask says, or with false takes back, that the agent of this session has little work and asks
	// others for shards. It returns before they see that.
	Ask(on bool)
	// Offer offers a lease of this session to another session, which may then follow the shard. It
	// fails with jobs.ErrFenced if the lease has changed.
	Offer(ctx context.Context, key, to string) error
	// Ready tells the holder of a lease that is offered to this session that this session has
	// followed the shard up to the last answer.
	Ready(ctx context.Context, key string) error
	// Withdraw ends an offer from or to this session. It returns nil if there is no such offer.
	Withdraw(ctx context.Context, key string) error
	// Hand writes a lease of this session in the name of the session to which it is offered. Before
	// the call this process must have stopped to serve the shard. After an error the lease is still
	// of this session, unless it was lost.
	Hand(ctx context.Context, key string) error
	// Lost is closed when another process has ended the session because it was not renewed in time,
	// or when it cannot be renewed any more. All its leases are lost then. While the server is away
	// the session waits, because no other process can take a lease meanwhile.
	Lost() <-chan struct{}
	// Close ends the session and gives back all its leases at once. A second call does nothing and
	// returns the error of the first.
	Close(ctx context.Context) error
}

// Lease is the right to serve one shard, as long as its session lasts. It prevents that two agents
// do the same work. Only the expected position of every append prevents that both have an effect.
type Lease interface {
	// Lost is closed when another process may hold the lease.
	Lost() <-chan struct{}
	// Release gives the lease back. A second call does nothing.
	Release(ctx context.Context) error
}

// Peer is a session as other sessions see it.
type Peer struct {
	Session string `json:"session"`
	Holder  string `json:"holder"` // the name of its agent
	Leases  int    `json:"leases"` // leases that it holds and does not offer, and leases offered to it
	Takes   bool   `json:"takes"`  // it takes part in hand-overs
	Asks    bool   `json:"asks"`   // its agent has little work and asks for shards
	Own     bool   `json:"own"`    // it is the session that was asked
}

// Offer is a lease that one session offers to another.
type Offer struct {
	Key      string
	From, To string // ids of sessions
	Own      bool   // From is the session that was asked; otherwise To is
	Ready    bool   // the agent of To has followed the shard up to the last answer
}

// Change is the present state of the record of a swarm.
type Change struct {
	ID    string
	Gone  bool  // there is no swarm of this id, or it is being removed
	Swarm Swarm // the record, unless Gone or Err is set
	Err   error // why the record cannot be read
}
