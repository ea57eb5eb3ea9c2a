package swarmclient

import (
	"context"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// admit refuses a swarm that no GPU agent has room for. It is a hint for people, because agents
// refuse what they cannot hold: a list that cannot be read, or has no GPU agent, is no reason to
// refuse.
func (c *Client) admit(ctx context.Context, spec *swarm.Spec) error {
	if c.agents == nil {
		return nil
	}
	agents, err := c.agents.Agents(ctx)
	if err != nil {
		return nil //nolint:nilerr // a hint: agents refuse what they cannot hold
	}
	if err := admitShards(spec.Name, agents); err != nil {
		return err
	}
	return c.admitPages(spec, agents)
}

// admitShards refuses a swarm while every GPU agent serves its maximum number of shards.
func admitShards(name string, agents []jobs.Agent) error {
	var full []string
	for _, a := range agents {
		switch {
		case a.Pool != jobs.PoolGPU:
		case a.State != "full":
			return nil
		default:
			full = append(full, fmt.Sprintf("%s has %d of %d", a.Name, a.Running, a.MaxShards))
		}
	}
	if len(full) == 0 {
		return nil
	}
	return jobs.Errorf(jobs.CodeInvalid, "swarm %s: every GPU agent has as many shards as it takes (%s): start "+
		"another one, raise --max-shards or --parked-memory, or delete swarms",
		name, strings.Join(full, ", "))
}

// admitPages refuses a swarm with more bytes of pages than the GPU agents can hold, with the
// numbers. It does not count what other swarms use: an agent with too little memory left refuses
// the swarm itself. It refuses nothing while the room of an agent is unknown.
func (c *Client) admitPages(spec *swarm.Spec, agents []jobs.Agent) error {
	var largest, together, most, all, disk, free int64
	resident := spec.Residency == swarm.ResidencyGPU
	known := 0
	for _, a := range agents {
		switch {
		case a.Pool != jobs.PoolGPU:
			continue
		case a.Room == nil || resident && a.Room.Free == nil:
			return nil
		}
		if resident {
			free = max(free, *a.Room.Free)
		}
		known++
		disk += a.Room.Disk
		most, all = max(most, a.Room.Shard+a.Room.Disk), all+a.Room.All+a.Room.Disk
	}
	var beside int64 // only swarms with one shard have it
	if c.beside != nil {
		beside = c.beside(spec)
	}
	record := swarms.Swarm{Groups: spec.Groups(), Shards: spec.Shards}
	for k := range record.ShardCount() {
		first, end := record.ShardGroups(k)
		n := spec.PageBytes(end-first) + beside
		largest, together = max(largest, n), together+n
	}
	if known > 0 && resident && largest > free && beside > 0 {
		return jobs.Errorf(jobs.CodeDevice, "swarm %s does not fit: agents that have neighbours are all on one "+
			"device: their pages need %s there and what ticks need beside them %s, and %s are free on the GPU agent "+
			"with the most: use fewer agents, or fewer links, or a GPU agent with more device memory",
			spec.Name, memory.Text(largest-beside), memory.Text(beside), memory.Text(free))
	}
	if known > 0 && resident && largest > free {
		return jobs.Errorf(jobs.CodeDevice, "swarm %s does not fit: residency: gpu keeps its pages on the device, a "+
			"shard of it needs %s, and %s are free on the GPU agent with the most: use fewer agents, more shards, "+
			"or leave residency out",
			spec.Name, memory.Text(largest), memory.Text(free))
	}
	if known == 0 || largest <= most && together <= all {
		return nil
	}
	need, have, holder := together, all, fmt.Sprintf("the %d GPU agents", known)
	if largest > most {
		need, have, holder = largest, most, "the largest GPU agent"
	}
	cure := "raise their --memory, or give them a --data-dir for pages that do not fit into memory"
	if disk > 0 {
		cure = "raise their --memory, or free some of their disks"
	}
	part := "it"
	if spec.Shards > 1 && largest > most {
		part = "a shard of it"
	}
	return jobs.Errorf(jobs.CodeDevice, "swarm %s does not fit: %s needs %s for the state of its agents, and %s can "+
		"hold %s: use fewer agents, %s",
		spec.Name, part, memory.Text(need), holder, memory.Text(have), cure)
}
