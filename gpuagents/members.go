package gpuagents

import (
	"errors"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/team"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// members are the places of a shard on further devices, which share its ticks.
type members struct {
	on    []*pool.Placement
	watch sync.WaitGroup // goroutines of evicted
}

// join places a shard on further devices, as many as its swarm wants and the pool has. The caller
// releases them.
func (a *Agent) join(on *pool.Placement, s swarms.Swarm) *members {
	if len(a.pool.Levels()) == 1 {
		return &members{}
	}
	devices, bytes := shard.Share(s)
	return &members{on: on.Join(devices, bytes)}
}

// team returns the members as the server takes them.
func (m *members) team() (all []team.Member) {
	for _, p := range m.on {
		all = append(all, team.Member{Device: p.Device(), Budget: p.Budget()})
	}
	return all
}

// evicted returns a channel that is closed when the shard must leave one of its devices. Its goroutines
// end then, or when stop is closed; the caller waits for them.
func (m *members) evicted(on *pool.Placement, stop <-chan struct{}) <-chan struct{} {
	if len(m.on) == 0 {
		return on.Evicted()
	}
	any, once := make(chan struct{}), sync.Once{}
	for _, p := range append([]*pool.Placement{on}, m.on...) {
		m.watch.Go(func() {
			select {
			case <-p.Evicted():
				once.Do(func() { close(any) })
			case <-stop:
			}
		})
	}
	return any
}

// failed counts the error that has ended the work on the shard at the device that has failed.
func (m *members) failed(on *pool.Placement, err error) {
	of := (*team.Error)(nil)
	if errors.As(err, &of) {
		for _, p := range m.on {
			if p.Device() == of.Device {
				p.Failed(err)
				return
			}
		}
	}
	on.Failed(err)
}

// release gives all places back. It is called once.
func (m *members) release() {
	for _, p := range m.on {
		p.Release()
	}
}
