package gpuprocess

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestKnowledgeGoesOn: knowledge nodes of several groups, with what they have learned and their
// ages, are the same when one agent process serves the swarm and when several come one after
// another, and so are the agents that hear them. So are nodes by vote, by key and by attention.
func TestKnowledgeGoesOn(t *testing.T) {
	for _, knowledge := range []string{
		"nodes: 3, merge: ema", "by: vote, merge: ema", "by: key, nodes: 3, merge: attention",
		"merge: attention, focus: 2",
	} {
		t.Run(knowledge, func(t *testing.T) { knowledgeGoesOn(t, knowledge) })
	}
}

// knowledgeGoesOn is TestKnowledgeGoesOn for some nodes.
func knowledgeGoesOn(t *testing.T, knowledge string) {
	t.Parallel()
	r := rand.New(rand.NewPCG(26, 11))
	var all []swarms.Entry
	add := func(kind, data string) {
		all = append(all, swarms.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: []byte(data)})
	}
	for range 6 {
		data, err := inputs(r).Encode()
		if err != nil {
			t.Fatalf("Encode: %v", err)
		}
		add(swarms.EntryObserve, string(data))
		add(swarms.EntryLearn, `{"v":1,"nodes":[2,0],"values":[0.5,-1,0.25,1]}`)
		add(swarms.EntryTick, `{"v":1,"count":3}`)
		add(swarms.EntryLearn, `{"v":1,"nodes":[1],"values":[2,0]}`) // refused
		add(swarms.EntryQuery, `{"v":1,"groups":[0,1,2],"knowledge":true}`)
		add(swarms.EntryQuery, `{"v":1,"agents":[0,1,2,17,500,899]}`)
	}
	text := "hear: [knowledge]\nknowledge: {units: 2, " + knowledge + "}\n" +
		"cell: {kind: gru, params: {hidden: 5}}\n"
	want := serveHearing(t, text, nil, all, false, false, len(all))
	for i, e := range all {
		kind, data, _ := strings.Cut(want[i], " ")
		switch {
		case e.Kind == swarms.EntryLearn && kind != swarms.EntryLearned &&
			!strings.Contains(data, string(jobs.CodeInvalid)):
			t.Fatalf("entry %d: %s", i+1, want[i])
		case kind == swarms.EntryKnown:
			k, err := batch.DecodeKnownNodes([]byte(data))
			even := k.Updates[0] == k.Updates[2] && k.Updates[0] >= k.Updates[1]
			// a candidate may have no voters
			if err != nil || !even && !strings.Contains(knowledge, "by: vote") {
				t.Fatalf("entry %d: %+v, %v", i+1, k, err)
			}
		}
	}
	goesOn(t, text, nil, all, want)
}
