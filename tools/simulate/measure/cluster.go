package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// cluster is a server process, maybe a process of a GPU agent, and connections of this process.
type cluster struct {
	dir           string
	server, agent *child // agent is nil before serve
	conns         []*natsq.Conn
}

func (m *measurement) openCluster(conns int) (_ *cluster, err error) {
	c := &cluster{dir: filepath.Join(m.dir, "nats")}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.server, err = spawn(m.ctx, "server", "-dir", c.dir); err != nil {
		return nil, err
	}
	for range conns {
		conn, err := natsq.Connect(m.ctx, natsconn.Options{URL: c.server.said, Name: "writer"})
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// serve makes a swarm with its logs and starts the agent, which takes it.
func (c *cluster) serve(ctx context.Context, of swarms.Swarm) (err error) {
	for k := range of.Shards {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := c.conns[0].Swarms.Log(of.ID, k, d).Create(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.conns[0].Swarms.CreateSwarm(ctx, of); err != nil {
		return err
	}
	c.agent, err = spawn(ctx, "agent", "-nats", c.server.said)
	return err
}

// endAgent ends the agent, and adds the mean time and number of entries of its last stages.
func (c *cluster) endAgent(keys map[string]float64) error {
	agent := c.agent
	c.agent = nil
	if err := agent.close(); err != nil {
		return err
	}
	for line := range strings.Lines(string(agent.last)) {
		var stage string
		var n, took, entries float64
		if _, err := fmt.Sscan(line, &stage, &n, &took, &entries); err == nil && n > 0 {
			keys["agent."+stage], keys["agent."+stage+".entries"] = took/n, entries/n
		}
	}
	return nil
}

func (c *cluster) close() error {
	for _, conn := range c.conns {
		conn.Close()
	}
	var errs []error
	for _, p := range []*child{c.agent, c.server} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

type spent struct{ client, server, agent time.Duration }

func (c *cluster) spent() (s spent) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		s.client = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	s.server = worked(c.server.cmd.Process.Pid)
	if c.agent != nil {
		s.agent = worked(c.agent.cmd.Process.Pid)
	}
	return s
}

// keys adds what was spent since an earlier time, in nanoseconds for each of n calls.
func (s spent) keys(before spent, n int64, keys map[string]float64) {
	for name, d := range map[string]time.Duration{
		"cpu.client": s.client - before.client, "cpu.server": s.server - before.server,
		"cpu.agent": s.agent - before.agent,
	} {
		if d > 0 && n > 0 {
			keys[name] = float64(d.Nanoseconds()) / float64(n)
		}
	}
}

func parallel(n int, f func(k int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { errs[k] = f(k) })
	}
	all.Wait()
	return errors.Join(errs...)
}
