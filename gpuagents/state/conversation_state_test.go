package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/model/modeltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// languages is a place with the model of modeltest, and the devices that hold it.
type languages struct {
	store snapshot.Store
	files *bucket.Files
	held  map[device.Device]*weights.Holder
	ref   swarms.ModelRef
}

func openLanguages(t *testing.T) *languages {
	t.Helper()
	store := openStore(t)
	files := bucket.NewFiles(store.(bucket.Bucket), nil, t.TempDir())
	testkit.Close(t, files)
	return &languages{store, files, map[device.Device]*weights.Holder{}, modeltest.Load(t, store)}
}

// text is a swarm of conversations; keys are further lines.
func (l *languages) text(agents int, keys string) string {
	return fmt.Sprintf("name: x\naddressed: agent\nagents: %d\nseed: 5\ncell: {kind: transformer, model: small, "+
		"model_sha256: %s, exact: true, cache_bytes: 256, params: {context: 64, chunk: 7}}\npage_size: 64KiB\n"+
		"vote: {candidates: [a, b, c], tokens: [3, 4, 9]}\n%s", agents, l.ref.SHA256, keys)
}

// open opens a shard of a swarm and gives it its model, as an agent process does. prepare opens its
// pages; nil: there are none.
func (l *languages) open(t *testing.T, d device.Device, b *pages.Budget, text string, shard int,
	prepare func(k *Snapshotter),
) *Snapshotter {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	testkit.NoError(t, "swarm.Parse", err)
	spec.PageSize = testPage // four pages a conversation
	if l.held[d] == nil {
		l.held[d] = weights.NewHolder(d, nil)
	}
	k := openShard(t, d, b, l.store, spec, spec.Groups(), shard, nil)
	k.UseLanguages(l.held[d], l.files)
	k.swarm.Spec = bytes.Replace(k.swarm.Spec, fmt.Appendf(nil, `"page_size":%d`, testPage),
		[]byte(`"page_size":65536`), 1)
	if prepare == nil {
		prepare = func(k *Snapshotter) {
			testkit.NoError(t, "Open", k.Memory().Open(t.Context(), nil))
			testkit.NoError(t, "Reset", k.Reset(t.Context()))
		}
	}
	prepare(k)
	testkit.NoError(t, "Equip", k.Equip(t.Context()))
	return k
}

// randomTalk is an entry for the conversations of a swarm. Some are refused.
func randomTalk(r *rand.Rand, agents int) swarms.Entry {
	agent := r.IntN(agents)
	entry := func(kind, format string, args ...any) swarms.Entry {
		return swarms.Entry{Kind: kind, Data: fmt.Appendf(nil, format, args...)}
	}
	switch r.IntN(16) {
	case 0, 1, 2, 3:
		var tokens []string
		for range 1 + r.IntN(20) {
			tokens = append(tokens, fmt.Sprint(r.IntN(40)))
		}
		sampling := `{}`
		if r.IntN(2) == 0 {
			sampling = fmt.Sprintf(`{"temperature":1.2,"top_k":12,"top_p":0.9,"repetition":1.1,"seed":%d}`, r.IntN(3))
		}
		return entry(swarms.EntryPrompt, `{"v":1,"agent":%d,"tokens":[%s],"max":%d,"sampling":%s,"stop":[%d]}`, agent,
			strings.Join(tokens, ","), r.IntN(25), sampling, r.IntN(40))
	case 4:
		return entry(swarms.EntryCancel, `{"v":1,"agent":%d}`, agent)
	case 5:
		return entry(swarms.EntryRewind, `{"v":1,"agent":%d,"to":%d}`, agent, r.IntN(30))
	case 6:
		return entry(swarms.EntryFork, `{"v":1,"agent":%d,"into":%d}`, agent, (agent+1+r.IntN(agents-1))%agents)
	case 7:
		return entry(swarms.EntryQuery, `{"v":1,"text":{"agent":%d,"from":0,"embedding":%v}}`, agent, r.IntN(2) == 0)
	case 8:
		return entry(swarms.EntryQuery, `{"v":1,"agents":[%d,0]}`, agent)
	case 9:
		return entry(swarms.EntryVote, `{"v":1,"rule":"plurality","priority":"%s"}`,
			[]string{"elected", "seeded", "uniform"}[r.IntN(3)])
	case 10:
		return entry(swarms.EntryFuse, `{"v":1,"by":%s}`, []string{
			`"all"`, `"vote"`, `"group"`, `"group","nodes":3`,
		}[r.IntN(4)])
	case 11:
		return entry(swarms.EntryCompute, `{"v":1,"text":"sum(tokens); n = count(active == 1) by all where left > 0"}`)
	}
	return entry(swarms.EntryTick, `{"v":1,"count":%d}`, 1+r.IntN(9))
}

// talk brings an entry into several states, whose answers and refusals must be the same.
func talk(t *testing.T, e swarms.Entry, all ...State) Answer {
	t.Helper()
	var first Answer
	var why error
	for i, s := range all {
		a, err := s.Apply(t.Context(), e)
		if err != nil && !errors.As(err, new(*jobs.Error)) {
			t.Fatalf("%s %s: %v", e.Kind, e.Data, err)
		}
		if i == 0 {
			first, why = a, err
		} else if d := diff(first, a, cmp.AllowUnexported(Answer{})); d != "" || fmt.Sprint(why) != fmt.Sprint(err) {
			t.Fatalf("%s %s: states 0 and %d differ: %s\n%v and %v", e.Kind, e.Data, i, d, why, err)
		}
	}
	return first
}

// TestConversations: 100 conversations with frames for a tenth of their pages answer as those with
// room for all. So do a process that follows the log and leaves out the questions, one that goes on
// from the last checkpoint after it was killed, and one that begins with a snapshot in other pages.
func TestConversations(t *testing.T) {
	l, d := openLanguages(t), openNamed(t, *opentest.Name)
	const agents = 100
	text := l.text(agents, "")
	whole := l.open(t, d, nil, text, 0, nil)
	few := l.open(t, d, pages.NewBudget(44*testPage+1, 1<<30), text, 0, nil)
	if n := whole.Memory().Count(); few.Memory().Frames() > n/8 || !whole.Memory().Resident() {
		t.Fatalf("%d frames for %d pages", few.Memory().Frames(), n)
	}
	follower := l.open(t, d, nil, text, 0, nil)
	disk := newDisk()
	store := disk.open(t)
	restarted := func() *Snapshotter {
		return l.open(t, d, pages.NewBudget(20*testPage+1, 1<<30), text, 0, func(k *Snapshotter) {
			testkit.NoError(t, "Open", k.Memory().Open(t.Context(), store))
			testkit.NoError(t, "Restored", k.Restored(t.Context()))
		})
	}
	killed := restarted()
	r := rand.New(rand.NewPCG(4, 4))
	var since []swarms.Entry // the last checkpoint
	tokens := 0
	for seq := range uint64(testkit.Of(600, 250)) {
		e := randomTalk(r, agents)
		e.Seq = seq + 1
		a := talk(t, e, whole, few, killed)
		if a.Ticked != nil {
			tokens += len(a.Ticked.Tokens)
		}
		if since = append(since, e); !follower.Rounds().Skip(e) {
			_, err := follower.Apply(t.Context(), e)
			if err != nil && !errors.As(err, new(*jobs.Error)) {
				t.Fatal(err)
			}
		}
		switch r.IntN(25) {
		case 0:
			testkit.NoError(t, "Checkpoint", killed.Memory().Checkpoint(t.Context(), nil))
			since = nil
		case 1:
			rounds := *killed.Rounds()
			testkit.NoError(t, "Close", errors.Join(killed.Close(), store.Close()))
			disk.fs = disk.fs.Crash(0.5, r)
			store = disk.open(t)
			killed = restarted()
			for _, e := range since {
				if !swarms.Asks(e.Kind) {
					talk(t, e, killed)
				}
			}
			killed.Rounds().last, killed.Rounds().outcome = rounds.last, rounds.outcome
		}
	}
	if tokens < 300 {
		t.Errorf("%d tokens were made: the comparison proves little", tokens)
	}
	pair{few, whole}.check(t)
	pair{follower, whole}.check(t)
	testkit.NoError(t, "Close", errors.Join(killed.Close(), store.Close()))

	s := take(t, whole, "one", 1000)
	from := swarms.SnapshotRef{Name: "one", SHA256: s.SHA256}
	restored := l.open(t, d, pages.NewBudget(60*testPage+1, 1<<30), strings.Replace(text, "64KiB", "132KiB", 1), 0,
		func(k *Snapshotter) {
			testkit.NoError(t, "Open", k.Memory().Open(t.Context(), nil))
			testkit.NoError(t, "Reset", k.Reset(t.Context()))
			testkit.NoError(t, "Load", k.Load(t.Context(), from))
		})
	for range 60 {
		talk(t, randomTalk(r, agents), whole, restored)
	}
}

// TestManyConversations: 1,000 conversations with frames for a tenth of their pages make the tokens of
// a swarm with room for all.
func TestManyConversations(t *testing.T) {
	testkit.OnlyLong(t)
	l, d := openLanguages(t), openNamed(t, *opentest.Name)
	const agents = 1000
	text := l.text(agents, "")
	whole := l.open(t, d, nil, text, 0, nil)
	frames := whole.Memory().Count() / 10
	few := l.open(t, d, pages.NewBudget(int64(frames)*testPage+1, 1<<30), text, 0, nil)
	if n := few.Memory().Frames(); n > frames || !whole.Memory().Resident() {
		t.Fatalf("%d frames for %d pages, want at most %d", n, whole.Memory().Count(), frames)
	}
	r := rand.New(rand.NewPCG(6, 6))
	for agent := range agents {
		var tokens []string
		for range 1 + r.IntN(20) {
			tokens = append(tokens, fmt.Sprint(r.IntN(40)))
		}
		talk(t, swarms.Entry{Kind: swarms.EntryPrompt, Data: fmt.Appendf(nil, `{"v":1,"agent":%d,"tokens":[%s],`+
			`"max":%d,"sampling":{"temperature":%d}}`, agent, strings.Join(tokens, ","), 20+r.IntN(20), agent%2)},
			whole, few)
	}
	tokens := 0
	var took [2]time.Duration
	for active := agents; active > 0; {
		var done [2]*swarms.Ticked
		for i, s := range []State{whole, few} {
			began := time.Now()
			done[i] = talk(t, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":4}`)}, s).Ticked
			took[i] += time.Since(began)
		}
		if d := diff(done[0], done[1]); d != "" {
			t.Fatalf("behind %d tokens: %s", tokens, d)
		}
		tokens, active = tokens+len(done[0].Tokens), done[0].Active
	}
	if tokens < 20*agents {
		t.Errorf("%d tokens, want %d at least", tokens, 20*agents)
	}
	pair{few, whole}.check(t)
	t.Logf("%d pages, %d frames, %d tokens: %v with frames for all, %v with frames for a tenth",
		whole.Memory().Count(), few.Memory().Frames(), tokens, took[0], took[1])
}

// TestConversationAlone: a conversation makes the same tokens alone and beside 63 others, read in
// other chunks, and again after a rewind and in a fork.
func TestConversationAlone(t *testing.T) {
	l, d := openLanguages(t), openNamed(t, *opentest.Name)
	prompt := func(agent, first int) swarms.Entry {
		return swarms.Entry{Kind: swarms.EntryPrompt, Data: fmt.Appendf(nil, `{"v":1,"agent":%d,"tokens":[%d,7,11,2,`+
			`30,5,19,8,21],"max":30,"sampling":{"temperature":0.9,"top_p":0.95,"seed":3}}`, agent, first)}
	}
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":40}`)}
	answer := func(s State, agent, from int) string {
		a := talk(t, swarms.Entry{
			Kind: swarms.EntryQuery, Data: fmt.Appendf(nil, `{"v":1,"text":{"agent":%d,"from":%d}}`, agent, from),
		}, s)
		text, err := swarms.DecodeText(a.Data)
		testkit.NoError(t, "DecodeText", err)
		return fmt.Sprint(text.Tokens)
	}
	alone := l.open(t, d, nil, l.text(64, ""), 0, nil)
	talk(t, prompt(17, 4), alone)
	talk(t, tick, alone)
	want := answer(alone, 17, 9)
	if n := strings.Count(want, " ") + 1; n != 30 {
		t.Fatalf("an answer of %d tokens, want 30: %s", n, want)
	}
	together := l.open(t, d, nil, strings.Replace(l.text(64, ""), "chunk: 7", "chunk: 2", 1), 0, nil)
	for agent := range 64 {
		first := 4
		if agent != 17 {
			first = agent % 40
		}
		talk(t, prompt(agent, first), together)
	}
	talk(t, tick, together)
	if got := answer(together, 17, 9); got != want {
		t.Errorf("beside 63 others: %s, want %s", got, want)
	}
	if got := answer(together, 18, 9); got == want {
		t.Error("two conversations make the same tokens")
	}
	again := `{"v":1,"agent":17,"tokens":[],"max":20,"sampling":{"temperature":0.9,"top_p":0.95,"seed":3}}`
	for _, e := range []swarms.Entry{
		{Kind: swarms.EntryRewind, Data: []byte(`{"v":1,"agent":17,"to":19}`)},
		{Kind: swarms.EntryPrompt, Data: []byte(again)},
		tick,
	} {
		talk(t, e, together)
	}
	if got := answer(together, 17, 9); got != want {
		t.Errorf("after a rewind: %s, want %s", got, want)
	}
	// A draw depends on the agent, so a fork that draws is another conversation, and one that takes the
	// largest logit is not.
	for _, e := range []swarms.Entry{
		{Kind: swarms.EntryFork, Data: []byte(`{"v":1,"agent":17,"into":40,"to":9}`)},
		{Kind: swarms.EntryFork, Data: []byte(`{"v":1,"agent":17,"into":41,"to":9}`)},
		{Kind: swarms.EntryPrompt, Data: []byte(`{"v":1,"agent":40,"tokens":[],"max":20}`)},
		{Kind: swarms.EntryPrompt, Data: []byte(`{"v":1,"agent":41,"tokens":[],"max":20}`)},
		tick,
	} {
		talk(t, e, together)
	}
	if a, b := answer(together, 40, 9), answer(together, 41, 9); a != b || len(a) < 30 {
		t.Errorf("two forks: %s and %s", a, b)
	}
}

// TestConversationShards: the shards of a swarm make the tokens of one shard, and their votes and
// fusions merge into the fusion of one.
func TestConversationShards(t *testing.T) {
	l, d := openLanguages(t), openNamed(t, *opentest.Name)
	one := l.open(t, d, nil, l.text(10, ""), 0, nil)
	parts := []*Snapshotter{
		l.open(t, d, nil, l.text(10, "shards: 2\n"), 0, nil), l.open(t, d, nil, l.text(10, "shards: 2\n"), 1, nil),
	}
	var rows [2][]swarms.TokenRow
	for agent := range 10 {
		e := swarms.Entry{Kind: swarms.EntryPrompt, Data: fmt.Appendf(nil, `{"v":1,"agent":%d,"tokens":[1,2,%d],`+
			`"max":5,"sampling":{"temperature":1}}`, agent, agent)}
		talk(t, e, one)
		talk(t, e, parts[agent/5])
	}
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	for range 6 {
		rows[0] = append(rows[0], talk(t, tick, one).Ticked.Tokens...)
		for _, p := range parts {
			rows[1] = append(rows[1], talk(t, tick, p).Ticked.Tokens...)
		}
	}
	if d := cmp.Diff(rows[0], rows[1]); d != "" || len(rows[0]) != 50 {
		t.Errorf("%d rows of one shard and of two differ:\n%s", len(rows[0]), d)
	}
	vote := swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"priority":"elected"}`)}
	whole := talk(t, vote, one).Voted
	var counts [3]uint64
	for _, p := range parts {
		part := talk(t, vote, p).Voted
		if part.Leader != nil || len(part.Bids) != 3 {
			t.Errorf("a shard answers %+v, want bids and no leader", part)
		}
		for c, n := range part.Counts {
			counts[c] += n
		}
	}
	if fmt.Sprint(counts) != fmt.Sprint(whole.Counts) || whole.Winner == nil || whole.Leader == nil {
		t.Errorf("votes of the shards %d, of one %+v", counts, whole)
	}
	_, err := parts[1].Apply(t.Context(), swarms.Entry{
		Kind: swarms.EntryFork, Data: []byte(`{"v":1,"agent":2,"into":7}`),
	})
	if err == nil || !strings.Contains(err.Error(), "write to the log of shard 0") {
		t.Errorf("a fork between shards: %v, want a refusal", err)
	}
}

// TestConversationRefusals: what conversations do not do is refused, and a model that does not fit.
func TestConversationRefusals(t *testing.T) {
	l, d := openLanguages(t), openNamed(t, *opentest.Name)
	k := l.open(t, d, nil, strings.Replace(l.text(10, ""), ", tokens: [3, 4, 9]", "", 1), 0, nil)
	for kind, of := range map[string][2]string{
		swarms.EntryObserve: {`{}`, "give them tokens with exoswarm swarm say"},
		swarms.EntryVote:    {`{"v":1}`, "vote: the swarm has no tokens of its candidates"},
		swarms.EntryFuse:    {`{"v":1,"by":"vote"}`, "vote: the swarm has no tokens of its candidates"},
		swarms.EntryLearn:   {`{}`, "no knowledge nodes"},
		swarms.EntryQuery:   {`{"v":1,"groups":[1]}`, "ask for 1 to"},
		swarms.EntryPrompt:  {`{"v":1,"agent":10,"tokens":[1],"max":1}`, "conversation: agent 10 of 10"},
		swarms.EntryAdopt: {
			fmt.Sprintf(`{"v":1,"name":"small","sha256":%q}`, l.ref.SHA256),
			"create another swarm with the other model",
		},
	} {
		_, err := k.Apply(t.Context(), swarms.Entry{Kind: kind, Data: []byte(of[0])})
		if !errors.As(err, new(*jobs.Error)) || !strings.Contains(err.Error(), of[1]) {
			t.Errorf("%s: %v, want %s", kind, err, of[1])
		}
	}
	for what, text := range map[string]string{
		"takes 256: leave it out": strings.Replace(l.text(10, ""), "cache_bytes: 256", "cache_bytes: 512", 1),
		"made for 128 tokens":     strings.Replace(l.text(10, ""), "context: 64", "context: 200", 1),
		"has the SHA-256":         strings.Replace(l.text(10, ""), l.ref.SHA256, strings.Repeat("0a", 32), 1),
	} {
		spec, err := swarm.Parse("test.yaml", []byte(text))
		testkit.NoError(t, "swarm.Parse", err)
		spec.PageSize = testPage
		k := openShard(t, d, nil, l.store, spec, spec.Groups(), 0, nil)
		k.UseLanguages(l.held[d], l.files)
		if err := k.Equip(t.Context()); !errors.As(err, new(*jobs.Error)) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	spec, err := swarm.Parse("test.yaml", []byte(strings.Replace(l.text(10, ""), "cache_bytes: 256, ", "", 1)))
	testkit.NoError(t, "swarm.Parse", err)
	if _, err := newWhole(d, nil, spec, 10); err == nil || !strings.Contains(err.Error(), "cache_bytes is missing") {
		t.Errorf("without cache_bytes: %v, want a refusal", err)
	}
}

// TestTickedRows: the answer to a tick with the most rows is smaller than a message.
func TestTickedRows(t *testing.T) {
	done := swarms.Ticked{Tokens: make([]swarms.TokenRow, swarms.MaxTokenRows)}
	for i := range done.Tokens {
		done.Tokens[i] = swarms.TokenRow{Agent: 1<<32 - 1, At: 1 << 20, Token: 4 << 20, Ended: swarms.EndedContext}
	}
	data, err := json.Marshal(done)
	testkit.NoError(t, "json.Marshal", err)
	if len(data) > swarms.MaxState {
		t.Errorf("%d bytes, want at most %d", len(data), swarms.MaxState)
	}
}
