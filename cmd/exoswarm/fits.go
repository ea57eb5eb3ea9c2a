package main

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/memory"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// fits returns an error with the numbers where the swarm's pages are more than what the GPU agents
// say that they can hold. What other swarms have of that is not counted: an agent that has too
// little left refuses the swarm itself. Nothing is refused while an agent does not say, or none is
// there.
func (s *simulation) fits(ctx context.Context) error {
	agents, err := s.conn.Registry.Agents(ctx)
	if err != nil {
		return nil //nolint:nilerr // it is a hint: agents refuse what they cannot hold
	}
	var largest, together, most, all, disk, free int64
	resident := s.spec.Residency == swarm.ResidencyGPU
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
	record := swarms.Swarm{Groups: s.spec.Groups(), Shards: s.spec.Shards}
	for k := range record.ShardCount() {
		first, end := record.ShardGroups(k)
		n := s.spec.PageBytes(end - first)
		largest, together = max(largest, n), together+n
	}
	if known > 0 && resident && largest > free {
		return jobs.Errorf(jobs.CodeDevice, "swarm %s does not fit: residency: gpu keeps its pages on the device, a "+
			"shard of it needs %s, and %s are free on the GPU agent with the most: use fewer agents, more shards, "+
			"or leave residency out",
			s.name, memory.Text(largest), memory.Text(free))
	}
	if known == 0 || largest <= most && together <= all {
		return nil
	}
	need, have, of := together, all, fmt.Sprintf("the %d GPU agents", known)
	if largest > most {
		need, have, of = largest, most, "the largest GPU agent"
	}
	cure := "raise their --memory, or give them a --data-dir for pages that do not fit into memory"
	if disk > 0 {
		cure = "raise their --memory, or free some of their disks"
	}
	what := "it"
	if s.spec.Shards > 1 && largest > most {
		what = "a shard of it"
	}
	return jobs.Errorf(jobs.CodeDevice, "swarm %s does not fit: %s needs %s for the state of its agents, and %s can "+
		"hold %s: use fewer agents, %s",
		s.name, what, memory.Text(need), of, memory.Text(have), cure)
}
