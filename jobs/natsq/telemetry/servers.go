package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// ServerReport is what the servers report at one moment.
type ServerReport struct {
	URL     string   `json:"url"` // of the connected server, without credentials
	Server  string   `json:"server"`
	Version string   `json:"version"`
	Cluster string   `json:"cluster,omitempty"`
	Servers []string `json:"servers"` // known addresses
	// RTT is the time of one message to the server and back.
	RTT time.Duration `json:"rtt_ns"`
	// Memory, Store and their limits are bytes of the account. A limit below 0 is none.
	Memory      uint64 `json:"memory_bytes"`
	MemoryLimit int64  `json:"memory_limit_bytes"`
	Store       uint64 `json:"store_bytes"`
	StoreLimit  int64  `json:"store_limit_bytes"`
	// Refuses reports whether the account may store nothing: a server of exoswarm nats refuses
	// while its disk is nearly full.
	Refuses bool `json:"refuses,omitempty"`
	// Streams are the streams of the protocol by name, without the logs of swarms.
	Streams []ServerStream `json:"streams"`
	// Logs are the logs of swarms that could be read.
	Logs []SwarmLogs `json:"-"`
}

// ServerStream is the state of a stream.
type ServerStream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Last     uint64 `json:"last_sequence"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"` // -1: no limit
	MaxMsgs  int64  `json:"max_messages"`
	Replicas int    `json:"replicas"`
	// Leader is the server that leads the stream. It is empty on a server without a cluster, and
	// when the stream is Leaderless: no majority of its replicas runs, which may be one server.
	Leader     string `json:"leader,omitempty"`
	Leaderless bool   `json:"leaderless,omitempty"`
	// Behind are the replicas that are gone or not current.
	Behind []string `json:"behind,omitempty"`
	// Missing reports whether the server listed the stream and did not report it.
	Missing bool `json:"missing,omitempty"`
}

// SwarmLogs is a log of a shard of a swarm.
type SwarmLogs struct {
	Swarm string // its key
	Shard int
	In    bool // the entries; otherwise the answers
	ServerStream
}

// Servers reads reports over a connection. Its methods may be called from several goroutines.
type Servers struct{ conn *natsconn.Conn }

// NewServers returns the servers that a connection reaches. The connection stays the caller's.
func NewServers(c *natsconn.Conn) *Servers { return &Servers{c} }

// Report asks the servers: one message for the account, one for the time of a message, and one for
// each 256 streams.
func (s *Servers) Report(ctx context.Context) (*ServerReport, error) {
	nc := s.conn.NC
	r := &ServerReport{
		URL: nc.ConnectedUrlRedacted(), Server: nc.ConnectedServerName(), Version: nc.ConnectedServerVersion(),
		Cluster: nc.ConnectedClusterName(), Servers: withoutLogin(nc.Servers()),
	}
	began := time.Now()
	if err := nc.FlushWithContext(ctx); err != nil {
		return nil, fmt.Errorf("reach the NATS server: %w", err)
	}
	r.RTT = time.Since(began)
	account, err := s.conn.JS.AccountInfo(ctx)
	if err != nil {
		return nil, asked("ask for the account", err)
	}
	r.Memory, r.MemoryLimit = account.Memory, account.Limits.MaxMemory
	r.Store, r.StoreLimit = account.Store, account.Limits.MaxStore
	r.Refuses = r.StoreLimit == 0
	list := s.conn.JS.ListStreams(ctx)
	for info := range list.Info() {
		st := stream(info)
		if l, ok := log(info, st); ok {
			r.Logs = append(r.Logs, l)
		} else {
			r.Streams = append(r.Streams, st)
		}
	}
	if err := list.Err(); err != nil {
		return nil, asked("list the streams", err)
	}
	slices.SortFunc(r.Streams, func(a, b ServerStream) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}

// ErrNoLeader marks a cluster of servers that answer while JetStream has no leader.
var ErrNoLeader = errors.New("JetStream has no leader")

// asked is the error of a question to JetStream, which says so where JetStream is not available.
func asked(what string, err error) error {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.Code == http.StatusServiceUnavailable ||
		errors.Is(err, context.DeadlineExceeded) { // the server itself answered a moment before
		return fmt.Errorf("%s: %w: %w", what, ErrNoLeader, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func withoutLogin(urls []string) (all []string) {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			all = append(all, u.Host)
		}
	}
	return all
}

func stream(i *jetstream.StreamInfo) ServerStream {
	s := ServerStream{
		Name: i.Config.Name, Messages: i.State.Msgs, Last: i.State.LastSeq, Bytes: i.State.Bytes,
		MaxBytes: i.Config.MaxBytes, MaxMsgs: i.Config.MaxMsgs, Replicas: max(i.Config.Replicas, 1),
	}
	if c := i.Cluster; c != nil {
		s.Leader = c.Leader
		s.Leaderless = c.Leader == ""
		for _, p := range c.Replicas {
			if p.Offline || !p.Current {
				s.Behind = append(s.Behind, p.Name)
			}
		}
	}
	return s
}

// log reports whether a stream is a log of a swarm, by its subject exo.log.SWARM.SHARD.DIR.
func log(i *jetstream.StreamInfo, s ServerStream) (SwarmLogs, bool) {
	if len(i.Config.Subjects) != 1 {
		return SwarmLogs{}, false
	}
	rest, ok := strings.CutPrefix(i.Config.Subjects[0], "exo.log.")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return SwarmLogs{}, false
	}
	shard, err := strconv.Atoi(parts[1])
	if err != nil {
		return SwarmLogs{}, false
	}
	return SwarmLogs{Swarm: parts[0], Shard: shard, In: parts[2] == "in", ServerStream: s}, true
}
