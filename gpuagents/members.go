package gpuagents

import (
	"errors"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// members are the slots of a shard on additional devices, which share its ticks.
type members struct {
	on    []*pool.Slot
	watch sync.WaitGroup // goroutines that evicted starts
}

// join takes slots on additional devices, as many as the swarm wants and the pool has. The caller
// releases them.
func (a *Agent) join(on *pool.Slot, s swarms.Swarm) *members {
	if len(a.pool.Levels()) == 1 {
		return &members{}
	}
	devices, bytes := shard.Share(s)
	return &members{on: on.Join(devices, bytes)}
}

func (m *members) team() (all []field.Peer) {
	for _, p := range m.on {
		all = append(all, field.Peer{Device: p.Device(), Budget: p.Budget()})
	}
	return all
}

// evicted returns a channel that is closed when the shard must leave one of its devices. Its
// goroutines end then, or when stop is closed; the caller waits for them.
func (m *members) evicted(on *pool.Slot, stop <-chan struct{}) <-chan struct{} {
	if len(m.on) == 0 {
		return on.Evicted()
	}
	any, once := make(chan struct{}), sync.Once{}
	for _, p := range append([]*pool.Slot{on}, m.on...) {
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

// failed attributes the error that ended the work on the shard to the device that failed.
func (m *members) failed(on *pool.Slot, err error) {
	of := (*field.PeerError)(nil)
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

// release releases all slots. It is called once.
func (m *members) release() {
	for _, p := range m.on {
		p.Release()
	}
}
