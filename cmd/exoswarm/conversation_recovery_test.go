package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	talkKills   = flag.Int("talk.kills", 4, "kill -9 of the GPU agent in TestConversationRecovery")
	talkStreams = flag.Int("talk.streams", 100, "conversations in TestConversationRecovery")
)

// TestConversationRecovery kills the GPU agent with kill -9 in the middle of the answers of many
// conversations. Each client gets the tokens that it gets from a swarm which nothing disturbs: none
// is lost, doubled or changed.
func TestConversationRecovery(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(*talkKills)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	gpu := r.gpus[0]
	gpu.command = append(gpu.command, "--snapshots", r.root)
	gpu.start(t)
	expect(t, 0, "model", "load", "gopher", "--file", filepath.Join("..", "..", "examples", "model", "gopher.gguf"),
		"--snapshots", r.root)
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: r.conn.Swarms, Agents: r.conn.Registry, Timeout: 5 * time.Minute,
	})
	testkit.NoError(t, "swarmclient.New", err)
	answer := max(120, 2**talkKills) // some ticks between two kills
	var made atomic.Int64            // tokens that clients have got
	create := func(name string) *swarmclient.Swarm {
		spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), fmt.Sprintf("name: %s\naddressed: agent\n"+
			"agents: %d\nseed: 7\ncell: {kind: transformer, model: gopher, exact: true, params: {context: %d, "+
			"chunk: 16}}\npage_size: 64KiB\ncheckpoint: {interval: 100ms, entries: 7}\n", name, *talkStreams,
			256+answer))
		expect(t, 0, "swarm", "create", "-f", spec, "--snapshots", r.root, "--nats", r.url)
		s, err := client.Open(ctx, name)
		testkit.NoError(t, "Open", err)
		return s
	}
	talk := func(s *swarmclient.Swarm) [][]int32 {
		all := make([][]int32, *talkStreams)
		var running sync.WaitGroup
		for agent := range all {
			running.Go(func() {
				p := swarms.Prompt{Agent: uint32(agent), Max: answer}
				p.Sampling.Temperature = 0.8
				for i := range 1 + agent {
					p.Tokens = append(p.Tokens, int32(2+(7*agent+i)%500))
				}
				at, err := s.Prompt(ctx, p)
				if err == nil {
					_, err = s.Answer(ctx, p.Agent, at, func(token int32) error {
						all[agent] = append(all[agent], token)
						made.Add(1)
						return nil
					})
				}
				if err != nil {
					t.Errorf("%s: agent %d, %d tokens: %v", s.ID(), agent, len(all[agent]), err)
				}
			})
		}
		running.Wait()
		return all
	}
	calm, killed := create("calm"), create("killed")
	want := talk(calm)
	made.Store(0)
	ended := make(chan [][]int32, 1)
	go func() { ended <- talk(killed) }()
	for kills := range *talkKills {
		part := int64(*talkStreams*answer) * int64(kills+1) / int64(*talkKills+1)
		testkit.Until(t, "tokens of answers", func() bool { return made.Load() >= part || t.Failed() })
		r.end(gpu, syscall.SIGKILL)
		gpu.start(t)
	}
	got := <-ended
	for agent := range want {
		if len(want[agent]) != answer || !slices.Equal(got[agent], want[agent]) {
			t.Errorf("agent %d: %d tokens, want %d as undisturbed: %d and %d", agent, len(got[agent]), answer,
				got[agent], want[agent])
		}
	}
	r.end(gpu, syscall.SIGTERM)
	t.Logf("%d kills, %d resumed from checkpoints", *talkKills, r.resumed)
	if *talkKills > 0 && r.resumed == 0 {
		t.Error("no shard went on from a checkpoint")
	}
}
