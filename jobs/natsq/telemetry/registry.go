package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// followEvery is the period of the announcements while the agent replays shards.
const followEvery = time.Second

// Registry reads and writes the bucket of agents. Its methods may be called from several
// goroutines.
type Registry struct{ conn *natsconn.Conn }

// NewRegistry returns the registry that a connection reaches. The connection stays the caller's.
func NewRegistry(c *natsconn.Conn) *Registry { return &Registry{c} }

// Announcement keeps an agent in the registry. It owns a goroutine; Close ends it.
type Announcement struct {
	r     *Registry
	key   string
	stop  context.CancelFunc
	ended sync.WaitGroup
	once  sync.Once
	err   error

	asked sync.Once
	drain chan struct{}
}

// drainSubject returns the subject on which an agent is asked to drain. It answers first.
func drainSubject(key string) string { return "exo.agent.drain." + key }

// Announce enters an agent into the registry and keeps it there until Close. It calls describe
// every few seconds, from one goroutine, for the present record. The Name in the record must not
// change.
func (r *Registry) Announce(ctx context.Context, describe func() jobs.Agent, log *slog.Logger) (*Announcement, error) {
	first := describe()
	if first.Name == "" {
		return nil, jobs.Errorf(jobs.CodeInvalid, "announce an agent: it has no name")
	}
	a := &Announcement{r: r, key: AgentKey(first.Name), drain: make(chan struct{})}
	// Subscribe before the record is stored, so that every reader of the record reaches the agent.
	sub, err := r.conn.NC.Subscribe(drainSubject(a.key), func(m *nats.Msg) {
		_ = m.Respond([]byte(fmt.Sprintf(`{"v":%d}`, jobs.Version))) // the registry shows that it drains
		a.asked.Do(func() { close(a.drain) })
	})
	if err != nil {
		return nil, fmt.Errorf("announce agent %s: %w", first.Name, err)
	}
	if err := r.announce(ctx, first); err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	var run context.Context
	run, a.stop = context.WithCancel(context.Background())
	a.ended.Go(func() {
		defer func() { _ = sub.Unsubscribe() }()
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		said, told := time.Now(), false // the last announcement, and whether it had replays
		missing := false                // the log has told that the record is missing
		for {
			select {
			case <-tick.C:
				now := describe()
				follows := len(now.Recovering) > 0
				if !follows && !told && time.Since(said) < natsconn.AnnounceEvery-followEvery/2 {
					continue
				}
				said, told = time.Now(), follows
				try, cancel := context.WithTimeout(run, natsconn.AnnounceEvery)
				err := r.announce(try, now)
				cancel()
				switch {
				case run.Err() != nil:
				case err == nil && missing:
					missing = false
					log.Info("this agent is in the registry again")
				case err != nil && !missing && r.conn.NC.IsConnected():
					missing = true
					log.Warn("this agent is missing from the registry; it goes on announcing itself", "error", err)
				}
			case <-run.Done():
				return
			}
		}
	})
	return a, nil
}

// Drained is closed when an operator has asked this agent to drain, see DrainAgent. The caller
// drains.
func (a *Announcement) Drained() <-chan struct{} { return a.drain }

// DrainAgent asks an agent to take no new work, to give back what it has, and to end. It returns
// when the agent has received the request. Without an agent of that name it fails with
// jobs.ErrNotFound.
func (r *Registry) DrainAgent(ctx context.Context, name string) error {
	err := r.conn.Retry(ctx, "drain agent "+name, func(ctx context.Context) error {
		_, err := r.conn.NC.RequestWithContext(ctx, drainSubject(AgentKey(name)), nil)
		if errors.Is(err, nats.ErrNoResponders) {
			return jobs.ErrNotFound
		}
		return err
	})
	if errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("drain agent %s: no agent of that name is connected (exoswarm agent list): %w", name, err)
	}
	return err
}

// AgentKey returns the id of an agent, at most 64 bytes, which is also the last token of its
// subjects. It makes an id of a name. The name of an agent contains the name of its host, which may
// be long and contain dots; the end of the name is unique.
func AgentKey(name string) string {
	key := []byte(name[max(0, len(name)-64):])
	for i, b := range key {
		if jobs.CheckID("", string(b)) != nil && (b != '-' || i == 0) {
			key[i] = '_'
		}
	}
	return string(key)
}

func (r *Registry) announce(ctx context.Context, a jobs.Agent) error {
	a.Version = jobs.Version
	if len(a.Kinds) > 0 {
		a.Levels = jobs.Levels() // every worker reads all of them
	}
	a.Seen = time.Time{} // the server's clock says
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("announce agent %s: %w", a.Name, err)
	}
	return r.conn.Retry(ctx, "announce agent "+a.Name, func(ctx context.Context) error {
		kv, err := r.conn.JS.KeyValue(ctx, wire.AgentBucket)
		if err != nil {
			return err
		}
		_, err = kv.Put(ctx, AgentKey(a.Name), data)
		return err
	})
}

// Close removes the agent from the registry. A second call does nothing and returns the same error.
func (a *Announcement) Close(ctx context.Context) error {
	a.once.Do(func() {
		a.stop()
		a.ended.Wait()
		a.err = a.r.conn.Retry(ctx, "sign off agent "+a.key, func(ctx context.Context) error {
			kv, err := a.r.conn.JS.KeyValue(ctx, wire.AgentBucket)
			if err != nil {
				return err
			}
			return kv.Purge(ctx, a.key)
		})
	})
	return a.err
}

// Agents returns the agents that have announced themselves within the last ten seconds, by name. It
// is for people and for hints: no decision that must be correct may depend on it.
func (r *Registry) Agents(ctx context.Context) ([]jobs.Agent, error) {
	var all []jobs.Agent
	err := r.conn.Values(ctx, "list agents", wire.AgentBucket, func(key string, m *natsconn.Message) {
		a := readAgent(key, m.Data)
		a.Seen = m.Time
		all = append(all, a)
	})
	slices.SortFunc(all, func(a, b jobs.Agent) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// OtherVersion is the State of an agent whose record has another version of the protocol.
const OtherVersion = "of another version"

// readAgent decodes the record of an agent. A record that it cannot decode gets a State that says
// so.
func readAgent(key string, value []byte) (a jobs.Agent) {
	if json.Unmarshal(value, &a) != nil || a.Version != jobs.Version {
		return jobs.Agent{Name: key, State: OtherVersion}
	}
	return a
}

// Served returns the number of agents of a pool per kind that they serve. It is a hint: a dead
// agent counts for up to ten seconds, and workers that do not announce themselves do not count.
func (r *Registry) Served(ctx context.Context, p jobs.Pool) (map[string]int, error) {
	agents, err := r.Agents(ctx)
	if err != nil {
		return nil, err
	}
	served := map[string]int{}
	for _, a := range agents {
		if a.Pool == p {
			for _, kind := range a.Kinds {
				served[kind]++
			}
		}
	}
	return served, nil
}
