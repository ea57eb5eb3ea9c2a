package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// past is a cluster whose swarms have a past: shops with n entries of all groups, crowd with at
// most 15 ticks and votes of each shard, all answered by a GPU agent that is gone.
func past(t *testing.T, n int) (Cluster, *travel.Guide) {
	t.Helper()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	people, series := createSwarm(t, c, strings.Replace(crowd, "90000", "3000", 1), 3), createSwarm(t, c, shops, 1)
	add := func(of swarms.Swarm, shard int, at uint64, e swarms.Entry) {
		t.Helper()
		e.Ref = at
		if err := c.Swarms.Log(of.Key(), shard, swarms.In).Append(t.Context(), at-1, e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(n) {
		o := &batch.Observations{Width: 1}
		for g := range uint32(series.Groups) {
			v := 10 + float64((7*i+uint64(g))%11)/3
			at := time.Date(2026, 11, 1, 0, 0, int(i), 0, time.UTC)
			o.Group, o.Row = append(o.Group, g), append(o.Row, i+1)
			o.Time, o.Read = append(o.Time, at.UnixNano()), append(o.Read, at.UnixNano())
			o.Features, o.Value = append(o.Features, float32(v)), append(o.Value, v)
			o.Timestamp = append(o.Timestamp, at.Format(time.RFC3339))
		}
		data, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		add(series, 0, i+1, swarms.Entry{Kind: swarms.EntryObserve, Data: data})
		e := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		if i%3 == 2 {
			e = swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1}`)}
		}
		for shard := range 3 {
			if i < 15 {
				add(people, shard, i+1, e)
			}
		}
	}
	replied(t, c, map[string]uint64{people.ID: min(uint64(n), 15), series.ID: uint64(n)}, people, series)
	w := cluster.Start(cluster.Options{Conn: c, Every: 100 * time.Millisecond})
	t.Cleanup(w.Close)
	guide, err := travel.New(travel.Options{Conn: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := guide.Close(); err != nil {
			t.Error(err)
		}
	})
	for len(w.State().Swarms) < 2 {
		if _, err := w.Wait(t.Context(), w.State().Frame); err != nil {
			t.Fatal(err)
		}
	}
	return Observe(w, c), guide
}

// replied has a GPU agent on the host device answer a number of entries of each shard, by id of the
// swarm.
func replied(t *testing.T, c *natsq.Conn, n map[string]uint64, all ...swarms.Swarm) {
	t.Helper()
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu-1", Device: dev, Queue: c.Swarms, PageMemory: 256 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Stop()
	for _, s := range all {
		for shard := range s.ShardCount() {
			testkit.Until(t, "the answers of "+s.ID, func() bool {
				last, err := c.Swarms.Log(s.Key(), shard, swarms.Out).Last(t.Context())
				return err == nil && last.Ref == n[s.ID]
			})
		}
	}
}

// travelViews are the pages of the past, with a text that each shows.
var travelViews = []view{
	{"moment", "swarms/shops/shards/0/at/25/group/7", "Agents 448 to 497 of group 7"},
	{"moment of agents", "swarms/crowd/shards/1/at/12", "Agents 1,000 to 1,049 of group 10"},
	{"comparison", "swarms/shops/shards/0/at/20/and/25/group/7", "The shard differs between the moments"},
	{"old decision", "swarms/shops/shards/0/decisions/9/group/7", "What group 7 decided before"},
}

// TestTravel shows the past of a real cluster in a browser: the pages of moments and of old
// decisions, what the buttons and links on them do, and what is refused.
func TestTravel(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	w, guide := past(t, 260)
	r := opened(t, w, func(o *Options) { o.Past = guide })
	b := openBrowser(t)
	b.begin(r)
	b.eachScreen(t, travelViews, *pictures)
	b = b.with(t)
	b.look(1280, 900, "light", false)

	// A decision that is older than the newest 200: its row, the chain, and the replay by a button.
	b.eval(`location.hash = "#/swarms/shops/shards/0/decisions/9/group/7"`, nil)
	text := func(what string) string {
		return `document.querySelector("main").innerText.includes(` + quote(what) + `)`
	}
	b.until("the row", text("none: a client wrote it"))
	b.until("the counts", text("Votes of group 7")+` && `+text("agent 448"))
	b.until("the chain", text("Earlier decisions of group 7")+` && `+
		`[...document.querySelectorAll("#before ~ .scroll tbody tr")].length === 8`)
	b.eval(`[...document.querySelectorAll("button")].find(b => b.innerText.startsWith("Replay")).click()`, nil)
	b.until("the state", text("Agents 448 to 497 of group 7"))
	var shown []string
	b.eval(`[...document.querySelector("#state ~ .scroll tbody tr").children].map(c => c.innerText)`, &shown)
	_, body := r.get(t, "swarms/shops/shards/0/at/9?group=7&agents=1")
	var v travel.View
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	agents := 0
	for _, of := range v.Group.Variables {
		if of.Per == "agent" {
			agents++
		}
	}
	if len(shown) != agents+1 || shown[0] != "448" {
		t.Errorf("the first agent is shown as %q, want its id and %d variables", shown, agents)
	}
	b.eval(`[...document.querySelectorAll("a")].find(a => a.innerText === "What entry 9 changed").click()`, nil)
	b.until("the comparison", text("The shard differs between the moments")+
		` && location.hash.endsWith("/at/8/and/9/group/7")`)
	b.until("what differs", text("they are shown as before → after")+` && document.querySelector(".changed")`)
	b.eval(`{ const f = document.querySelector("form");
		f.at.value = 30; f.and.value = ""; f.group.value = 3; f.requestSubmit(); }`, nil)
	b.until("another moment", text("State after entry 30")+` && `+text("of group 3")+
		` && location.hash.endsWith("/at/30/group/3")`)
	b.eval(`[...document.querySelectorAll("button")].find(b => b.innerText === "Further agents").click()`, nil)
	b.until("the further agents", text("Agents 242 to 255 of group 3"))
	if bad := b.violations(); len(bad) > 0 {
		t.Errorf("violations: %s", strings.Join(bad, "\n"))
	}
	if bad := b.axe(); len(bad) > 0 {
		t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
	}
	for hash, want := range map[string]string{
		"crowd/shards/0/at/11/and/12": "have the same bits at both moments", "crowd/shards/2/decisions/6": "Quorum",
	} {
		b.eval("location.hash = "+quote("#/swarms/"+hash), nil)
		b.until(want, text(want))
	}
	b.eval(`location.hash = "#/swarms/shops/shards/0/at/999"`, nil)
	b.until("the refusal", text("entry 999: its log has the entries 1 to 260"))
	b.eval(`location.hash = "#/swarms/shops/shards/0/decisions/999"`, nil)
	b.until("no decision", text("The shard has no answer 999"))
}

// TestTravelAPI: the JSON of moments, entries and chains of a real cluster.
func TestTravelAPI(t *testing.T) {
	w, guide := past(t, 30)
	r := opened(t, w, func(o *Options) { o.Past = guide })
	get := func(path string, into any) {
		t.Helper()
		res, body := r.get(t, path)
		if res.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, res.status, body)
		}
		if err := json.Unmarshal([]byte(body), into); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	var v travel.View
	get("swarms/shops/shards/0/at/20?group=7&agents=3&first=2&and=21", &v)
	if v.Last != 30 || v.First != 1 || v.EndGroup != 40 || v.PerGroup != 64 || len(v.Moments) != 2 || *v.Same ||
		v.Group.FirstAgent != 7*64+2 || v.Group.Agents != 3 || v.Moments[0].Entry.Count != 40 ||
		v.Moments[0].Entry.Answer != swarms.EntryDecide || v.Moments[1].Entry.Seq != 21 {
		t.Errorf("the view of two moments is %+v", v)
	}
	rounds := 0
	for _, of := range v.Group.Variables {
		if len(of.At) != len(of.And) || of.Per == "agent" && len(of.At) != 3 || of.Per == "group" && len(of.At) != 1 {
			t.Errorf("variable %s has %d and %d rows", of.Name, len(of.At), len(of.And))
		}
		if of.Name == "round" && of.At[0][0] == float64(20) && of.And[0][0] == float64(21) && len(of.Changed) == 1 {
			rounds++
		}
	}
	if rounds != 1 {
		t.Errorf("the round does not go from 20 to 21 in %+v", v.Group.Variables)
	}
	var e travel.Entry
	get("swarms/shops/shards/0/entries/20?group=7", &e)
	if e.Count != 40 || len(e.Rows) != 1 || e.Rows[0].Row != 20 || e.Rows[0].Group != 7 || *e.Rows[0].Values[0] !=
		10+float64((7*19+7)%11)/3 || strings.Join(e.Columns, ",") != "value" || e.Timestamp != "timestamp" ||
		e.Rows[0].Timestamp != "2026-11-01T00:00:19Z" {
		t.Errorf("entry 20 is %+v", e)
	}
	var chain cluster.GroupDecisions
	get("swarms/shops/shards/0/groups/7/decisions?before=20&limit=5", &chain)
	var seqs []uint64
	for _, d := range chain.Decisions {
		if seqs = append(seqs, d.Seq); len(d.Rows) != 1 || d.Rows[0].Group != 7 || d.Rows[0].Row != d.Seq {
			t.Errorf("decision %d of group 7 has the rows %+v", d.Seq, d.Rows)
		}
	}
	if fmt.Sprint(seqs) != "[19 18 17 16 15]" || chain.Next != 15 {
		t.Errorf("before answer 20 group 7 decided in %v, next %d", seqs, chain.Next)
	}
	var old []cluster.Decision
	get("swarms/shops/decisions?before=3", &old)
	if len(old) != 2 || old[0].Seq != 2 {
		t.Errorf("the decisions before the third are %+v", old)
	}
	for path, want := range map[string]int{
		"swarms/shops/shards/0/at/31": 404, "swarms/shops/shards/0/entries/31": 404,
		"swarms/shops/shards/0/at/1?group=40": 404,
	} {
		if res, body := r.get(t, path); res.status != want {
			t.Errorf("%s: %d %s, want %d", path, res.status, body, want)
		}
	}
	r = opened(t, w, nil)
	if res, body := r.get(t, "swarms/shops/shards/0/at/1"); res.status != 404 ||
		!strings.Contains(body, "does not replay") {
		t.Errorf("a dashboard without replays: %d %s", res.status, body)
	}
}

// slowPast is a Past whose questions last until their contexts end.
type slowPast struct{ asked, ended chan struct{} }

func (p slowPast) At(ctx context.Context, _ travel.Question) (travel.View, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	p.ended <- struct{}{}
	return travel.View{}, context.Cause(ctx)
}

func (slowPast) Entry(context.Context, string, int, uint64, int) (travel.Entry, error) {
	return travel.Entry{}, errors.New("unused")
}

// TestTravelBound: a replay ends with its request, and a bounded number of requests wait for one.
func TestTravelBound(t *testing.T) {
	p := slowPast{make(chan struct{}, maxMoments), make(chan struct{}, maxMoments)}
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Past = p })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, maxMoments)
	for range maxMoments {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"api/v1/swarms/shops/shards/0/at/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+testToken)
		go func() {
			res, err := r.http.Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			failed <- err
		}()
		<-p.asked
	}
	if res, body := r.get(t, "swarms/shops/shards/0/at/1"); res.status != 503 || !strings.Contains(body, "try again") {
		t.Errorf("one more: %d %s", res.status, body)
	}
	cancel()
	for range maxMoments {
		if err := <-failed; err == nil {
			t.Error("a request that was cancelled has an answer")
		}
		<-p.ended
	}
}
