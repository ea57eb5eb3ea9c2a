package dashboard

import (
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

var pictures = flag.String("pictures", "", "write a picture of each page into this folder")

// view is a page: its name, its address and a text that it shows.
type view struct{ name, hash, text string }

// views are all pages, by the name of their picture, with a text that each shows.
var views = []view{
	{"overview", "", "Needs attention"},
	{"incidents", "incidents", "pump-17"},
	{"numbers", "numbers", "NATS store"},
	{"entity", "swarms/shops/entities/17", "What else moved at that time"},
	{"missing entity", "swarms/none/entities/1", "not there any more"},
	{"swarm of a run that is over", "swarms/r9", "9 decisions, 1 incident"},
	{"queue", "queue", "Dead letters"},
	{"job", "jobs/j1", "before-2"},
	{"detectors", "detectors", "Rows without a decision"},
	{"detector", "detectors/plant", "p: row 7: no value"},
	{"detector that failed", "detectors/late", "no column"},
	{"missing detector", "detectors/none", "No such detector"},
	{"swarms", "swarms", "shops"},
	{"swarm", "swarms/shops", "Entropy and margin"},
	{"entities", "swarms/shops", "Find an entity by key"},
	{"heat map", "swarms/shops", "cells of up to"},
	{"box", "swarms/flock", "A box of 60 by 40, in 600 cells"},
	{"observations of an agent", "swarms/flock/agents/7", "Next answer"},
	{"missing agent of a swarm", "swarms/flock/agents/900", "agent 900"},
	{"spikes", "swarms/cortex", "and a column a tick, the last one tick 25"},
	{"swarm of a run", "swarms/s2", "lif"},
	{"decision", "swarms/shops/shards/0/decisions/7", "Margin"},
	{"decision of a group", "swarms/shops/shards/1/decisions/7/group/5", "file:in/shop-3.csv"},
	{"replay", "swarms/shops/shards/1/at/30", "Replaying the log"},
	{"agents", "agents", "NVIDIA H100"},
	{"agent", "agents/g1", "Device temperature"},
	{"models of an agent", "agents/g1", "4.00 GiB on its devices, 1.50 GiB pass in each step"},
	{"timeline", "agents/g1", "read back"},
	{"tiers", "tiers", "gpu to cpu"},
	{"map of pages", "tiers", "Pale cells"},
	{"tenants", "tenants", "acme"},
	{"nats", "nats", "EXO_JOBS_CPU"},
	{"doctor", "doctor", "sync_interval"},
	{"audit", "audit", "Nothing was done"},
	{"missing", "nothing", "no such page"},
	{"missing job", "jobs/none", "No such job"},
}

// watch runs in each new document: it keeps the violations of the content security policy.
const watch = `window.violations = [];
document.addEventListener("securitypolicyviolation", e =>
  violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sourceFile));
window.addEventListener("error", e => violations.push("error: " + e.message + " " + e.filename + ":" + e.lineno));
window.addEventListener("unhandledrejection", e => violations.push("rejection: " + e.reason));`

// violations returns what the page has violated since it was loaded, and the console's errors.
func (b *browser) violations() []string {
	b.t.Helper()
	var all []string
	b.eval("window.violations", &all)
	for _, line := range b.seen("Log.entryAdded") {
		// They are not there.
		if !strings.Contains(line, "api/v1/jobs/none") && !strings.Contains(line, "api/v1/detectors/none") &&
			!strings.Contains(line, "api/v1/swarms/none/") && !strings.Contains(line, "/agents/900") {
			all = append(all, line)
		}
	}
	return all
}

// axe returns the violations of axe-core's rules, with the elements.
func (b *browser) axe() []string {
	b.t.Helper()
	var all []string
	b.eval(
		`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.slice(0, 3)
			.map(n => n.html.slice(0, 200) + " " + (n.any[0]?.message ?? "")).join(" | ")))`,
		&all,
	)
	return all
}

// useAxe makes axe-core known in the present document. The policy of the page does not hold for the
// protocol.
func (b *browser) useAxe() {
	b.t.Helper()
	script, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		b.t.Fatal(err)
	}
	b.eval(string(script)+"\n;undefined", nil)
}

// tick makes frames until the returned function is called.
func tick(f *fakeCluster, edit func(*cluster.State)) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f.next(edit)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// grow lets the counters of a state grow.
func grow(s *cluster.State) {
	s.Agents = slices.Clone(s.Agents)
	for i, a := range s.Agents {
		if a.Telemetry == nil {
			continue
		}
		t := *a.Telemetry
		t.At = time.Now()
		t.Samples = slices.Clone(t.Samples)
		for k := range t.Samples {
			t.Samples[k].Value += float64(k + 1)
		}
		s.Agents[i].Telemetry = &t
	}
}

// TestPages opens every page in both color schemes, on a wide screen, on a phone and at 200 % zoom:
// nothing violates the content security policy or a rule of axe-core, and no page is wider than the
// screen.
func TestPages(t *testing.T) {
	t.Parallel()
	f := newFake(fakeState())
	defer tick(f, grow)()
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.begin(r)
	b.eachScreen(t, views, "")
}

// begin logs in and shows the overview, with axe-core.
func (b *browser) begin(r *running) {
	b.t.Helper()
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watch}, nil)
	b.look(1280, 900, "light", false)
	b.open(r.base + "#t=" + url.PathEscape(testToken))
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	b.useAxe()
}

// eachScreen tests views on several screens, and writes pictures into a folder that is not empty.
func (b *browser) eachScreen(t *testing.T, views []view, folder string) {
	begin := time.Now()
	screens := []struct {
		name, scheme  string
		width, height int
		phone         bool
	}{
		{"light", "light", 1280, 900, false},
		{"dark", "dark", 1280, 900, false},
		{"phone", "light", 360, 740, true},
		{"420", "dark", 420, 900, true},
		{"zoom", "dark", 640, 450, false}, // 1280 by 900 at 200 %
	}
	for i, v := range views {
		some := screens
		if !testkit.Long() && folder == "" {
			some = screens[i%2 : i%2+1] // light and dark by turns
		}
		for _, s := range some {
			if t.Failed() && time.Since(begin) > 2*time.Minute {
				t.Fatal("too slow to go on after a failure")
			}
			t.Run(v.name+"/"+s.name, func(t *testing.T) {
				b := b.with(t)
				b.look(s.width, s.height, s.scheme, s.phone)
				b.eval("location.hash = "+quote("#/"+v.hash), nil)
				b.until(v.text, `document.querySelector("main").innerText.includes(`+quote(v.text)+`)`)
				b.until("one heading", `document.querySelectorAll("h1").length === 1`)
				b.until("its charts", `[...document.querySelectorAll(".plot")].every(p => p.querySelector("canvas"))`)
				if bad := b.violations(); len(bad) > 0 {
					t.Errorf("violations: %s", strings.Join(bad, "\n"))
				}
				if bad := b.axe(); len(bad) > 0 {
					t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
				}
				var wide int
				if b.eval("document.documentElement.scrollWidth", &wide); wide > s.width {
					t.Errorf("the page is %d pixels wide, the screen %d", wide, s.width)
				}
				shown := s.name == "light" || v.name == "overview" && (s.name == "dark" || s.name == "420")
				if folder != "" && shown {
					name := filepath.Join(folder, "dashboard-"+v.name+"-"+s.name+".webp")
					if err := os.WriteFile(name, b.picture(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

func (b *browser) with(t *testing.T) *browser {
	b.t = t
	return b
}

// TestFirstVisit: a browser that knows nothing paints the page after at most 120 kB in few
// requests, from this origin alone. The log has the time of the first paint.
func TestFirstVisit(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.look(1280, 900, "light", false)
	b.open(r.base + "#t=" + url.PathEscape(testToken)) // starts the browser's processes
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	b.open("about:blank")
	b.call("Network.clearBrowserCache", nil, nil)
	b.forget()
	b.open(r.base)
	b.until("the charts", `document.querySelector(".plot canvas")`)
	var paint float64
	const painted = `performance.getEntriesByName("first-contentful-paint")[0]`
	b.until("the first paint", painted) // the entry comes behind the frame
	b.eval(painted+".startTime", &paint)
	var size float64
	for _, e := range b.seen("Network.loadingFinished") {
		var got struct{ EncodedDataLength float64 }
		if err := json.Unmarshal([]byte(e), &got); err != nil {
			t.Fatal(err)
		}
		size += got.EncodedDataLength
	}
	requests := b.seen("Network.requestWillBeSent")
	for _, e := range requests {
		var got struct{ Request struct{ URL string } }
		if err := json.Unmarshal([]byte(e), &got); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got.Request.URL, r.base) {
			t.Errorf("the page asks %s", got.Request.URL)
		}
	}
	t.Logf("first paint %.0f ms, %.1f kB, %d requests", paint, size/1000, len(requests))
	if size < 20_000 || size > 120_000 {
		t.Errorf("%.0f bytes over the wire, want at most 120,000", size)
	}
	if len(requests) > 30 {
		t.Errorf("%d requests, want at most 30", len(requests))
	}
}

// TestEmptyPages: pages of a cluster with nothing in it say what to do next.
func TestEmptyPages(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	f := newFake(&cluster.State{Frame: 1, At: time.Now()})
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watch}, nil)
	b.look(1280, 900, "light", false)
	b.open(r.base + "#t=" + url.PathEscape(testToken))
	for hash, text := range map[string]string{
		"": "exoswarm serve", "queue": "exoswarm init", "swarms": "exoswarm run", "agents": "gpuagent",
		"tiers":   "exoswarm swarm create",
		"tenants": "exoswarm tenant limit", "nats": "exoswarm init", "swarms/x": "No such swarm",
		"agents/x": "No such agent",
	} {
		b.eval("location.hash = "+quote("#/"+hash), nil)
		b.until(text, `document.querySelector("main").innerText.includes(`+quote(text)+`)`)
	}
	if bad := b.violations(); len(bad) > 0 {
		t.Errorf("violations: %s", strings.Join(bad, "\n"))
	}
}

// TestEntitySearch: the search box of a swarm with a key finds entities by a part of their names,
// and says what is near where none has it.
func TestEntitySearch(t *testing.T) {
	t.Parallel()
	f := newFake(fakeState())
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.begin(r)
	b.eval("location.hash = "+quote("#/swarms/shops"), nil)
	b.until("the search box", `document.querySelector("input[name=key]")`)
	find := func(text, status, link string) {
		t.Helper()
		b.eval(`{ const i = document.querySelector("input[name=key]"); i.value = `+quote(text)+
			`; i.dispatchEvent(new Event("input", {bubbles: true})); }`, nil)
		section := `document.querySelector("section[aria-labelledby=entities]")`
		b.until(status, section+`.querySelector("[role=status]")?.innerText.includes(`+quote(status)+`)`)
		b.until(link, section+`.querySelector("tbody td a")?.getAttribute("href") === `+quote(link))
	}
	find("pump-17", "11 of 300", "#/swarms/s1/shards/0/at/118/group/17")
	find("pump-117", "1 of 300", "#/swarms/s1/shards/1/at/100/group/117")
	find("pmup-7", "None of 300 has “pmup-7”. The nearest:", "#/swarms/s1/shards/0/at/118/group/7")
	if bad := b.violations(); len(bad) > 0 {
		t.Errorf("violations: %s", strings.Join(bad, "\n"))
	}
	if bad := b.axe(); len(bad) > 0 {
		t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
	}
	b.eval("location.hash = "+quote("#/swarms/s2"), nil)
	b.until("a swarm without a key", `document.querySelector("h1").innerText.includes("shops") &&
		document.querySelector("#shards") && !document.querySelector("input[name=key]")`)
}

// TestAgentSearch: the number of an agent leads from the page of its swarm to its observations,
// each with its score and the value that came next.
func TestAgentSearch(t *testing.T) {
	t.Parallel()
	r := opened(t, newFake(fakeState()), nil)
	b := openBrowser(t)
	b.begin(r)
	b.eval(`location.hash = "#/swarms/shops"`, nil)
	b.until("a swarm of groups", `document.querySelector("#shards") && !document.querySelector("input[name=agent]")`)
	b.eval(`location.hash = "#/swarms/flock"`, nil)
	b.until("the search box", `document.querySelector("input[name=agent]")`)
	b.eval(`{ const i = document.querySelector("input[name=agent]"); i.value = 7; i.form.requestSubmit(); }`, nil)
	b.until("the page", `location.hash === "#/swarms/s3/agents/7" && document.querySelector("#observations")`)
	var shown [][]string
	b.eval(`[...document.querySelectorAll("main tbody tr")].slice(0, 3)
		.map(r => [...r.children].map(c => c.innerText))`, &shown)
	for i, want := range []string{"30 30 – – –", "29 29 7 0.750 30", "28 28 7 0.750 29"} {
		if got := strings.Join(shown[i][:5], " "); got != want {
			t.Errorf("observation %d is shown as %q, want %q", i, got, want)
		}
	}
	if bad := b.violations(); len(bad) > 0 {
		t.Errorf("violations: %s", strings.Join(bad, "\n"))
	}
}

// TestFaults: the fault that explains the others is first, with its time and what to do; what is
// old while the servers do not answer is marked, and all is right again without a reload.
func TestFaults(t *testing.T) {
	t.Parallel()
	f := newFake(fakeState())
	f.next(func(s *cluster.State) { s.Watches[0].State = cluster.WatchRuns })
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.begin(r)
	first := func(what, text string) {
		t.Helper()
		b.until(what, `(document.querySelector(".problems li")?.innerText || "").includes(`+quote(text)+`)`)
	}
	f.next(func(s *cluster.State) {
		s.NATS.Refuses = true
		s.Watches = []cluster.Watch{{
			Name: "plant", Swarm: "s1", Detector: true, State: cluster.WatchWaits, Since: submitted,
			Why: "a receiver of its decisions does not take them",
		}}
	})
	first("the cause", "its disk is nearly full")
	first("what to do", "make room on the disk")
	b.until("the time", `document.querySelector(".problems li time")`)
	b.until("the detector and its reason",
		`document.querySelector(".problems").innerText.includes("plant: a receiver")`)
	b.eval(`location.hash = "#/detectors"`, nil)
	b.until("the list of detectors", `document.querySelector("main").innerText.includes("waiting\t9.9K/s") ||
		document.querySelector("main").innerText.includes("waiting\t0/s")`)
	b.until("why it waits", `document.querySelector("main").innerText.includes("a receiver of its decisions")`)
	b.eval(`location.hash = "#/"`, nil)
	b.until("its state", `document.querySelector("#watched").parentElement.innerText.includes("waiting a receiver")`)
	f.next(func(s *cluster.State) { s.NATS.Refuses, s.Error, s.Since = true, "no responders", submitted })
	b.until("old data", `document.querySelector("[role=alert].old")?.innerText.includes("as of")`)
	first("one fault", "does not answer")
	b.until("nothing else", `document.querySelectorAll(".problems > li").length === 1`)
	if bad := b.axe(); len(bad) > 0 {
		t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
	}
	f.next(func(s *cluster.State) {
		*s = cluster.State{Frame: s.Frame, At: s.At, Watches: []cluster.Watch{{
			Name: "plant", Swarm: "s1", Detector: true, State: cluster.WatchRuns, Since: submitted,
		}}, Agents: []cluster.Agent{
			{Agent: jobs.Agent{Name: "c1", Pool: jobs.PoolCPU, State: "serving"}},
			{Agent: jobs.Agent{Name: "g1", Pool: jobs.PoolGPU, State: "serving"}},
		}, NATS: telemetry.ServerReport{Version: "2.14.0", Cluster: "c"}}
	})
	b.until("all is well", `!document.querySelector(".old") &&
		document.querySelector("main").innerText.includes("All is well")`)
}

// TestLoginPage: without a login the page asks for the token, a wrong one is refused with a
// sentence, and the token does not stay in the address.
func TestLoginPage(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	f := newFake(fakeState())
	r := opened(t, f, func(o *Options) { o.Token = "" })
	b := openBrowser(t)
	b.open(r.base)
	b.until("the form", `document.querySelector("form.login")`)
	b.useAxe()
	if bad := b.axe(); len(bad) > 0 {
		t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
	}
	send := func(token string) {
		b.eval(
			`{ const i = document.querySelector("input"); i.value = `+quote(
				token,
			)+`; i.dispatchEvent(new Event("input", {bubbles: true})); }`,
			nil,
		)
		b.until("the token", `document.querySelector("input").value === `+quote(token))
		b.eval(`setTimeout(() => document.querySelector("form").requestSubmit(), 50)`, nil)
	}
	send("wrong")
	b.until("the refusal", `document.querySelector("[role=alert]").innerText.includes("wrong")`)
	send(r.s.logins.token())
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	b.call("Network.clearBrowserCookies", nil, nil)
	b.open("about:blank")
	b.open(r.s.LoginURL(strings.TrimSuffix(strings.TrimPrefix(r.base, "http://"), "/")))
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	var hash string
	if b.eval("location.hash", &hash); hash != "#/" {
		t.Errorf("the address ends with %q", hash)
	}
	var cookies string
	if b.eval("document.cookie", &cookies); cookies != "" {
		t.Errorf("the page can read the cookie: %q", cookies)
	}
}

// TestKeyboard: the navigation and the shards are reached and moved by keys alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	f := newFake(fakeState())
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.look(1280, 900, "light", false)
	b.open(r.base + "#t=" + url.PathEscape(testToken))
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	key := func(name string, code int) {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", map[string]any{
				"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code,
				"text": map[bool]string{true: "\r"}[name == "Enter" && kind == "keyDown"],
			}, nil)
		}
	}
	key("Tab", 9)
	b.until("the skip link", `document.activeElement.className === "skip"`)
	key("Tab", 9)
	key("Tab", 9)
	key("Tab", 9)
	b.until("the second page", `document.activeElement.textContent === "Incidents"`)
	b.eval(`document.querySelector("main a[href='#/swarms/s1/entities/17']").focus()`, nil)
	key("Enter", 13)
	b.until("the page of the entity", `document.querySelector("h1").innerText === "pump-17"`)
	b.eval(`location.hash = "#/swarms/shops"`, nil)
	b.until("the strip", `document.querySelector(".shard")`)
	// A page that is still being drawn may replace the strip, and with it the focus.
	b.until("the focus on the strip", `(document.querySelector(".shard").focus(), `+
		`document.activeElement.classList.contains("shard") && `+
		`document.querySelector("main").innerText.includes("Votes of shard 0"))`)
	key("ArrowRight", 39)
	b.until(
		"the second shard",
		`document.querySelector(".shard[aria-pressed=true]").getAttribute("aria-label").startsWith("shard 1")`,
	)
	b.until("its votes", `document.querySelector("main").innerText.includes("Votes of shard 1")`)
}

// TestHiddenTab: a hidden page has no stream, so the cluster is not watched. It continues with the
// newest state when it is visible again.
func TestHiddenTab(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	f := newFake(fakeState())
	r := opened(t, f, nil, func(s *Server) { s.events.beat = 50 * time.Millisecond })
	b := openBrowser(t)
	b.begin(r)
	show := func(visible string) {
		b.eval(`Object.defineProperty(document, "hidden", {configurable: true, get: () => !`+visible+`});
			document.dispatchEvent(new Event("visibilitychange"))`, nil)
	}
	testkit.Until(t, "one follower", func() bool { return f.watchers.Load() == 1 })
	show("false")
	testkit.Until(t, "nobody watches", func() bool { return f.watchers.Load() == 0 })
	f.next(func(s *cluster.State) { s.Agents, s.NATS.Refuses = nil, true })
	show("true")
	b.until("the new state", `document.querySelector("main").innerText.includes("No agent yet")`)
	b.until("a full disk", `document.querySelector("main").innerText.includes("disk is nearly full")`)
}

// TestLostServer: a page whose server ends says so, and asks for a login when another process
// answers at its address.
func TestLostServer(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	f := newFake(fakeState())
	b := openBrowser(t)
	first, ln := listening(t, f, "127.0.0.1:0")
	addr := ln.Addr().String()
	r := &running{s: first, base: "http://" + addr + "/"}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- first.Serve(ctx, ln) }()
	b.begin(r)
	b.until("live numbers", `document.getElementById("status").innerText.includes("live")`)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.until("the loss", `document.getElementById("status").innerText.includes("connection lost")`)
	second, ln := listening(t, f, addr)
	ctx, stop = context.WithCancel(t.Context())
	go func() { done <- second.Serve(ctx, ln) }()
	b.until("the form", `document.querySelector("form.login")`)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func listening(t *testing.T, f Cluster, addr string) (*Server, net.Listener) {
	t.Helper()
	s, err := New(Options{Cluster: f, Listen: addr, Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return s, ln
}

// TestPrefixPage: the page works below a path.
func TestPrefixPage(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Prefix = "/a/b" })
	b := openBrowser(t)
	b.open(r.base + "a/b/#t=" + url.PathEscape(testToken))
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	b.until("the charts", `document.querySelector(".plot canvas")`)
}

// TestVotes: the page shows the shares of candidates, their entropy and their margin as the answers
// have them.
func TestVotes(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r := opened(t, newFake(fakeState()), nil)
	b := openBrowser(t)
	b.open(r.base)
	var got []string
	b.eval(`import("./`+site().folder+`/pages/swarms.js").then(({votes, shape}) => [
		votes({body: {counts: [3, 1]}}, ["a", "b"]),
		votes({body: {tally: [1, 2], decided: [0, 5]}}),
		votes({rows: [{counts: [1, 2], decision: 1}, {counts: [4, 0], decision: 0}], body: null}, ["a", "b"]),
		votes({rows: [{decision: 1}, {decision: 1}, {decision: -1}]}, ["a", "b"]),
		votes({body: {error: "x"}}), votes({}),
		shape({a: 5, b: 5}), shape({a: 3, b: 1, c: 0}), shape({a: 7}), shape({a: 0}),
	].map(x => JSON.stringify(x)))`, &got)
	for i, want := range []string{
		`{"a":3,"b":1}`,
		`{"candidate 0":0,"candidate 1":5}`,
		`{"a":5,"b":2}`,
		`{"b":2}`,
		`null`, `null`,
		`{"entropy":1,"margin":0}`, `{"entropy":0.511`, `{"entropy":0,"margin":1}`, `{"entropy":null,"margin":null}`,
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("answer %d: %v, want %s", i, got, want)
		}
	}
}

// TestFastAnswer: an answer that comes before the page was painted for the first time is shown.
func TestFastAnswer(t *testing.T) {
	r := opened(t, newFake(fakeState()), nil)
	b := openBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `window.fetch = () =>
		Promise.resolve(new Response('{"error":"log in first"}', {status: 401}))`}, nil)
	b.open(r.base)
	b.until("the form", `document.querySelector("form.login")`)
}
