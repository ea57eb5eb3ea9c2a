package gpuprocess

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// ballots are votes of random rounds, some of them of none and some not valid, between entries of
// other kinds.
func ballots(tb testing.TB, r *rand.Rand, n int) (all []swarms.Entry) {
	tb.Helper()
	for i := range n {
		var v any
		e := swarms.Entry{Kind: swarms.EntryVote, Ref: uint64(i + 1)}
		switch r.IntN(8) {
		case 0:
			e.Kind, v = swarms.EntryReset, swarms.Reset{Version: jobs.Version}
		case 1:
			e.Kind, v = swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1}
		case 2:
			v = swarms.Vote{Version: jobs.Version, Round: 1 << 40, Rule: "most"}
		case 3, 4:
			v = swarms.Vote{Version: jobs.Version}
		default:
			v = swarms.Vote{Version: jobs.Version, Round: uint64(1 + r.IntN(2*n)), Priority: swarms.PrioritySeeded}
		}
		data, err := json.Marshal(v)
		if err != nil {
			tb.Fatalf("json.Marshal: %v", err)
		}
		e.Data = data
		all = append(all, e)
	}
	return all
}

// checkVotes compares the answers to votes with rounds that are counted here, from entry number
// first on, where the last round was last. It returns the last one.
func checkVotes(tb testing.TB, asked, answers []swarms.Entry, last uint64) uint64 {
	tb.Helper()
	for i, e := range asked {
		v, err := swarms.DecodeVote(e.Data)
		if e.Kind != swarms.EntryVote {
			continue
		}
		got := answers[i]
		if err != nil || v.Round != 0 && v.Round <= last {
			want := fmt.Sprintf("the last round of this swarm was %d: use %d or more", last, last+1)
			if got.Kind != swarms.EntryRejected || err == nil &&
				(!strings.Contains(string(got.Data), want) || !strings.Contains(string(got.Data), `"code":"round"`)) {
				tb.Fatalf("vote %d, %s, behind round %d: %s %s", i+1, e.Data, last, got.Kind, got.Data)
			}
			continue
		}
		last = max(v.Round, last+1)
		if voted, err := swarms.DecodeVoted(got.Data); got.Kind != swarms.EntryVoted || err != nil ||
			voted.Round != last {
			tb.Fatalf("vote %d, %s, behind round %d: %s %s", i+1, e.Data, last, got.Kind, got.Data)
		}
	}
	return last
}

// TestRoundsGoOn: the rounds of a swarm only go up, whatever agent comes after another: one with
// the checkpoint of the first, one without, one that has parked the swarm, and one that begins with
// the snapshot that the log was trimmed to.
func TestRoundsGoOn(t *testing.T) {
	testkit.OnlyLong(t)
	const agents, each = 5, 8
	for _, kind := range []string{"checkpoints", "replays", "parked", "parked with checkpoints"} {
		t.Run(kind, func(t *testing.T) {
			r, data, store := newRig(t), t.TempDir(), place(t, t.TempDir())
			all := ballots(t, rand.New(rand.NewPCG(3, uint64(len(kind)))), agents*each)
			r.logs(t, "x", nil)
			r.logs(t, "other", nil)
			r.put(t, "x", byAgent)
			start := func() *gpuagents.Agent {
				o := gpuagents.Options{Snapshots: store}
				if strings.Contains(kind, "checkpoints") {
					o.Checkpoints = checkpointsIn(filepath.Join(data, "kept"))
				}
				if strings.Contains(kind, "parked") {
					o.OpenShards = 1
				}
				return r.start(t, o)
			}
			if strings.Contains(kind, "parked") {
				r.put(t, "other", byAgent)
			}
			for i := range agents {
				a := start()
				for k := range each {
					at := i*each + k
					r.told(t, "x", at+1, all[at])
					if strings.Contains(kind, "parked") && k%4 == 0 {
						other := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
						last, err := r.conn.Swarms.Log("other", 0, swarms.In).Last(t.Context())
						if err != nil {
							t.Fatalf("r.conn.Swarms.Log().Last: %v", err)
						}
						r.told(t, "other", int(last.Seq)+1, other)
						r.crowd(t, a, 1)
					}
				}
				a.Stop()
			}
			last := checkVotes(t, all, r.all(t, "x", len(all)), 0)
			// The log is trimmed to a snapshot of the swarm: an agent that knows nothing else goes
			// on from there.
			n := len(all)
			a := start()
			kept, err := swarms.DecodeSnapshotted(r.told(t, "x", n+1,
				swarms.Entry{Kind: swarms.EntrySnapshot, Data: []byte(`{"v":1,"name":"kept"}`)}).Data)
			if err != nil {
				t.Fatalf("swarms.DecodeSnapshotted: %v", err)
			}
			a.Stop()
			s, err := r.conn.Swarms.Swarm(t.Context(), "x")
			if err == nil {
				_, err = r.conn.Swarms.ChangeSwarm(t.Context(), s, func(s *swarms.Swarm) {
					s.Base = &swarms.Base{
						SnapshotRef: swarms.SnapshotRef{Name: "kept", SHA256: kept.SHA256},
						Entry:       kept.Entry,
					}
				})
			}
			if err == nil {
				err = r.conn.Swarms.Log("x", 0, swarms.In).Trim(t.Context(), kept.Entry+1)
			}
			if err != nil {
				t.Fatal(err)
			}
			data = t.TempDir()
			start()
			for i, v := range []swarms.Vote{{Round: last}, {}, {Round: 1}, {Round: last + 9}} {
				v.Version = jobs.Version
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatalf("json.Marshal: %v", err)
				}
				e := swarms.Entry{Kind: swarms.EntryVote, Data: text}
				last = checkVotes(t, []swarms.Entry{e}, []swarms.Entry{r.told(t, "x", n+2+i, e)}, last)
			}
		})
	}
}
