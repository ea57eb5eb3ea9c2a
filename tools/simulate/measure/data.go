package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	agentCount = 1_000_000
	groupSize  = 50
	kinds      = 8 // different entries, which are used in turn
)

// swarmOf returns a swarm of addressed agents in some shards, and its specification.
func swarmOf(shards int) (swarms.Swarm, *swarm.Spec, error) {
	spec, err := swarm.Parse("measure.yaml", fmt.Appendf(nil, "name: m\naddressed: agent\nagents: %d\n"+
		"agents_per_group: %d\nshards: %d\ncell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000000}\n",
		agentCount, groupSize, shards))
	if err != nil {
		return swarms.Swarm{}, nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return swarms.Swarm{}, nil, err
	}
	return swarms.Swarm{
		Version: jobs.Version, ID: "m", Name: "m", Spec: data, Groups: spec.Groups(), Shards: shards,
	}, spec, nil
}

func observations(of swarms.Swarm, shard, rows int) []*batch.AgentObservations {
	first, end := of.ShardGroups(shard)
	r := rand.New(rand.NewPCG(uint64(shard), uint64(rows)))
	all := make([]*batch.AgentObservations, kinds)
	for i := range all {
		o := &batch.AgentObservations{Width: 1}
		for range rows {
			o.Agent = append(o.Agent, uint32(groupSize*first)+r.Uint32N(uint32(groupSize*(end-first))))
			o.Features = append(o.Features, float32(math.Round(r.NormFloat64()*1000)/1000))
		}
		all[i] = o
	}
	return all
}
