// Package programs serves programs over HTTP: swarms that they create and feed, with the decisions
// in the answers, and jobs that they take and do. The package python has the client.
package programs

import (
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Version is the number of the protocol. A client of another number does not understand the
// answers.
const Version = 1

// Bounds of a server.
const (
	maxRequests = 64        // in progress; most of them wait for the cluster
	maxBodies   = 256 << 20 // bytes of the bodies in memory at a time
	maxBody     = 64 << 20  // bytes of a body
	maxUnpacked = 256 << 20 // bytes of the arrays in a body
	maxJSON     = 1 << 20   // bytes of a body of JSON
	// patience bounds a request. It is longer than the timeout of a swarm, so that its error says
	// what is missing.
	patience = 5 * time.Minute
	// A body comes without a pause of bodyPause, and at bodyRate bytes a second after the first one.
	bodyPause = 10 * time.Second
	bodyRate  = 64 << 10
)

// Media types of bodies and answers.
const (
	// MediaArrays is the type of archives of arrays (.npz of NumPy).
	MediaArrays = "application/zip"
	// MediaNDJSON and MediaCSV are the types of rows and decisions as text.
	MediaNDJSON = "application/x-ndjson"
	MediaCSV    = "text/csv"
)

// Options configure a Server. Conn is required.
type Options struct {
	// Conn is the connection to the cluster, which stays the caller's.
	Conn *natsq.Conn
	// Snapshots is the place of the snapshots of the cluster, which stays the caller's; nil: arrays of
	// snapshots cannot be read.
	Snapshots snapshot.Store
	// Log receives what programs create and delete; nil for none.
	Log *slog.Logger
	// WorkerTTL is the time without a call after which a worker is gone; 0 means 30 s.
	WorkerTTL time.Duration
}

// Server answers the requests of programs. Its methods may be called from several goroutines. The
// caller calls Close after the last request.
type Server struct {
	o      Options
	client *swarmclient.Client
	places httpapi.Gate
	bodies *httpapi.Bodies

	mu    sync.Mutex
	feeds map[string]*feeder // by the id of the swarm

	workers *workers
}

// New returns a server.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WorkerTTL == 0 {
		o.WorkerTTL = 30 * time.Second
	}
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: o.Conn.Swarms, Agents: o.Conn.Registry, Beside: state.BesideBytes, Jobs: o.Conn.Queue,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, client: client, places: httpapi.NewGate(maxRequests), bodies: httpapi.NewBodies(maxBodies),
		feeds: map[string]*feeder{}, workers: newWorkers(o),
	}
	s.bodies.Wait, s.bodies.Pause, s.bodies.Rate = bodyPause, bodyPause, bodyRate
	return s, nil
}

// Close ends the workers, whose jobs go back to the queue, and the readers of answers. A second
// call does nothing.
func (s *Server) Close() {
	s.workers.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.feeds {
		f.close()
		delete(s.feeds, id)
	}
}
