package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// An agent announces itself every announceEvery and is forgotten when it has not for agentAge: three announcements may be
// lost.
const (
	announceEvery = 3 * time.Second
	// followEvery is how often it does while it replays shards.
	followEvery = time.Second
)

// Announcement keeps an agent in the registry.
type Announcement struct {
	c     *Conn
	id    string
	stop  context.CancelFunc
	ended sync.WaitGroup
	once  sync.Once
	err   error

	asked sync.Once
	drain chan struct{}
}

// drainSubject is where an agent is asked to drain; it answers before it does.
func drainSubject(key string) string { return "exo.agent.drain." + key }

// Announce enters an agent into the registry and keeps it there until Close. describe is called every few seconds for what is
// to be said of it; its Name must be an id and stay the same.
func (c *Conn) Announce(ctx context.Context, describe func() jobs.Agent, log *slog.Logger) (*Announcement, error) {
	first := describe()
	if first.Name == "" {
		return nil, jobs.Errorf(jobs.CodeInvalid, "announce an agent: it has no name")
	}
	a := &Announcement{c: c, id: agentKey(first.Name), drain: make(chan struct{})}
	// Before the entry, so that the server knows where the agent listens when it has that.
	sub, err := c.NC.Subscribe(drainSubject(a.id), func(m *nats.Msg) {
		_ = m.Respond([]byte(fmt.Sprintf(`{"v":%d}`, jobs.Version))) // whoever asked sees in the registry that it drains
		a.asked.Do(func() { close(a.drain) })
	})
	if err != nil {
		return nil, fmt.Errorf("announce agent %s: %w", first.Name, err)
	}
	if err := c.announce(ctx, first); err != nil {
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
		missing := false                // and the log says so; while NATS is unreachable the connection's own line does
		for {
			select {
			case <-tick.C:
				now := describe()
				follows := len(now.Recovering) > 0
				if !follows && !told && time.Since(said) < announceEvery-followEvery/2 {
					continue
				}
				said, told = time.Now(), follows
				try, cancel := context.WithTimeout(run, announceEvery)
				err := c.announce(try, now)
				cancel()
				switch {
				case run.Err() != nil:
				case err == nil && missing:
					missing = false
					log.Info("this agent is in the registry again")
				case err != nil && !missing && c.NC.IsConnected():
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

// Drained is closed when an operator has asked this agent to drain (Conn.DrainAgent). What to do is the caller's.
func (a *Announcement) Drained() <-chan struct{} { return a.drain }

// DrainAgent asks an agent to take nothing new, to give back what it has, and to end. It returns when the agent has heard;
// jobs.ErrNotFound when there is none of that name.
func (c *Conn) DrainAgent(ctx context.Context, name string) error {
	err := c.Retry(ctx, "drain agent "+name, func(ctx context.Context) error {
		_, err := c.NC.RequestWithContext(ctx, drainSubject(agentKey(name)), nil)
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

// agentKey makes an id of a name. Names of agents hold a host's name, which may have dots and be long; they end in what tells
// them apart.
func agentKey(name string) string {
	key := []byte(name[max(0, len(name)-64):])
	for i, b := range key {
		if jobs.CheckID("", string(b)) != nil {
			key[i] = '_'
		}
	}
	return string(key)
}

func (c *Conn) announce(ctx context.Context, a jobs.Agent) error {
	a.Version = jobs.Version
	a.Seen = time.Time{} // the server's clock says
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("announce agent %s: %w", a.Name, err)
	}
	return c.Retry(ctx, "announce agent "+a.Name, func(ctx context.Context) error {
		kv, err := c.JS.KeyValue(ctx, wire.AgentBucket)
		if err != nil {
			return err
		}
		_, err = kv.Put(ctx, agentKey(a.Name), data)
		return err
	})
}

// Close takes the agent out of the registry. A second call does nothing and returns what the first did.
func (a *Announcement) Close(ctx context.Context) error {
	a.once.Do(func() {
		a.stop()
		a.ended.Wait()
		a.err = a.c.Retry(ctx, "sign off agent "+a.id, func(ctx context.Context) error {
			kv, err := a.c.JS.KeyValue(ctx, wire.AgentBucket)
			if err != nil {
				return err
			}
			return kv.Purge(ctx, a.id)
		})
	})
	return a.err
}

// Agents lists the agents that have announced themselves within the last ten seconds, by name. It is for people and for
// hints; nothing that must be right may rest on it.
func (c *Conn) Agents(ctx context.Context) ([]jobs.Agent, error) {
	var all []jobs.Agent
	err := c.Values(ctx, "list agents", wire.AgentBucket, func(key string, m *natsconn.Message) {
		a := readAgent(key, m.Data)
		a.Seen = m.Time
		all = append(all, a)
	})
	slices.SortFunc(all, func(a, b jobs.Agent) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// readAgent reads an agent's record, which may be a stranger's.
func readAgent(key string, value []byte) (a jobs.Agent) {
	if json.Unmarshal(value, &a) != nil || a.Version != jobs.Version {
		return jobs.Agent{Name: key, State: "of another version"}
	}
	return a
}

// Served counts, for every kind, the agents of a pool that say that they serve it. It is a hint: it takes up to ten seconds to
// notice that an agent has died, and workers that do not announce themselves are not in it.
func (c *Conn) Served(ctx context.Context, p jobs.Pool) (map[string]int, error) {
	agents, err := c.Agents(ctx)
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

// Unserved explains that no agent serves a kind of jobs, and names the kinds that are served. It returns "" when there is one.
func (c *Conn) Unserved(ctx context.Context, p jobs.Pool, kind string) (string, error) {
	served, err := c.Served(ctx, p)
	if err != nil || served[kind] > 0 {
		return "", err
	}
	return unserved(p, kind, served), nil
}

func unserved(p jobs.Pool, kind string, served map[string]int) string {
	if len(served) == 0 {
		return fmt.Sprintf("no agent of kind %s: pool %s has no agent", kind, p)
	}
	return fmt.Sprintf("no agent of kind %s: the agents of pool %s serve %s", kind, p, strings.Join(slices.Sorted(maps.Keys(served)), ", "))
}

// CheckPools refuses jobs for pool gpu while no agent takes jobs of that pool: the GPU agents of this version serve swarms only.
func (c *Conn) CheckPools(ctx context.Context, batch ...jobs.Job) error {
	i := slices.IndexFunc(batch, func(j jobs.Job) bool { return j.Pool == jobs.PoolGPU })
	if i < 0 {
		return nil
	}
	served, err := c.Served(ctx, jobs.PoolGPU)
	if err != nil || len(served) > 0 {
		return err
	}
	return jobs.Errorf(jobs.CodeInvalid,
		"job %s: no agent takes jobs of pool gpu: gpuagent serves swarms (exoswarm swarm create); use pool cpu, or start a worker of pool gpu first", batch[i].ID)
}
