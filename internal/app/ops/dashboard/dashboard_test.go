package dashboard

import (
	"bufio"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestOptions: a server that other machines could read or enter is refused.
func TestOptions(t *testing.T) {
	f := newFake(fakeState())
	for _, c := range []struct {
		name string
		o    Options
		want error
	}{
		{"loopback", Options{Listen: "127.0.0.1:8228"}, nil},
		{"loopback by name", Options{Listen: "localhost:0"}, nil},
		{"loopback of IPv6", Options{Listen: "[::1]:0"}, nil},
		{"all addresses", Options{Listen: ":8228"}, ErrExposed},
		{"an address", Options{Listen: "10.1.2.3:8228"}, ErrExposed},
		{"a name", Options{Listen: "host:8228"}, ErrExposed},
		{"a token is not enough", Options{Listen: "0.0.0.0:8228", Token: testToken}, ErrExposed},
		{"TLS", Options{Listen: ":8228", TLS: &tls.Config{}}, nil},
		{"a proxy with a header", Options{
			Listen: ":8228", BehindProxy: true, AuthHeader: "X-User", ProxySecret: testToken,
		}, nil},
		{"a proxy without a secret", Options{Listen: ":8228", BehindProxy: true, AuthHeader: "X-User"}, ErrToken},
		{"a proxy without a header", Options{Listen: ":8228", BehindProxy: true}, ErrOptions},
		{"a header without a proxy", Options{Listen: "127.0.0.1:1", AuthHeader: "X-User"}, ErrOptions},
		{"a short token", Options{Listen: "127.0.0.1:1", Token: "0123456789012345678"}, ErrToken},
		{"no port", Options{Listen: "127.0.0.1"}, ErrOptions},
	} {
		c.o.Cluster = f
		s, err := New(c.o)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if s != nil {
			s.Close()
		}
	}
	if _, err := New(Options{Listen: "127.0.0.1:1"}); !errors.Is(err, ErrOptions) {
		t.Errorf("without a cluster: %v", err)
	}
}

// TestLogin: the API answers nobody without a login; a one-time token counts once, and the next one
// is announced.
func TestLogin(t *testing.T) {
	t.Parallel()
	announced := make(chan string, 1)
	r := opened(t, newFake(fakeState()), func(o *Options) {
		o.Token, o.Announce = "", func(url string) { announced <- url }
	})
	for _, route := range r.s.table() {
		path := strings.NewReplacer("{id}", "j1", "{name}", "shops", "{shard}", "0", "{entry}", "1", "{group}",
			"3").Replace(route.Path)
		res, body := r.do(t, route.Method, "api/v1/"+path, "{}")
		switch {
		case route.Public || route.Name == "logIn":
		case res.status != http.StatusUnauthorized || !strings.Contains(body, "log in"):
			t.Errorf("%s %s without a login: %d %s", route.Method, path, res.status, body)
		}
	}
	token := r.s.logins.token()
	if res := r.logIn(t, token+"x"); res.status != http.StatusUnauthorized {
		t.Error("a wrong token:", res.status)
	}
	if res, _ := r.do(t, "POST", "api/v1/login", strings.Repeat("[", 10_000)); res.status != http.StatusBadRequest {
		t.Error("a large body:", res.status)
	}
	if res := r.logIn(t, token); res.status != http.StatusNoContent {
		t.Fatal("the token:", res.status)
	}
	next := <-announced
	if want := r.base + "#t=" + r.s.logins.token(); next != want || strings.Contains(next, token) {
		t.Errorf("announced %s, want %s", next, want)
	}
	c := r.cookies()
	if len(c) != 1 || c[0].Name != "exoswarm-"+r.port() {
		t.Fatal("cookies:", c)
	}
	if res, _ := r.do(t, "GET", "api/v1/state", ""); res.status != http.StatusOK {
		t.Error("with the cookie:", res.status)
	}
	other := *r
	other.http = &http.Client{Transport: r.http.Transport}
	if res := other.logIn(t, token); res.status != http.StatusUnauthorized {
		t.Error("the token again:", res.status)
	}
	if res, _ := other.do(t, "GET", "api/v1/state", "", "Authorization",
		"Bearer "); res.status != http.StatusUnauthorized {
		t.Error("an empty bearer token, without a lasting one:", res.status)
	}
	if res, _ := r.do(t, "DELETE", "api/v1/login", ""); res.status != http.StatusNoContent {
		t.Error("log out:", res.status)
	}
	if res, _ := other.do(t, "GET", "api/v1/state", "", "Cookie",
		c[0].String()); res.status != http.StatusUnauthorized {
		t.Error("the cookie after its end:", res.status)
	}
}

func (r *running) port() string {
	u, _ := url.Parse(r.base) // made by serve
	return u.Port()
}

// TestCookie: what the browser may do with the cookie.
func TestCookie(t *testing.T) {
	r := opened(t, newFake(fakeState()), nil)
	res := r.logIn(t, testToken)
	if text := res.header.Get("Set-Cookie"); !strings.Contains(text, "HttpOnly") ||
		!strings.Contains(text, "SameSite=Strict") ||
		strings.Contains(text, "Secure") ||
		!strings.Contains(text, "Path=/") {
		t.Error(text)
	}
	s, err := New(Options{Cluster: newFake(fakeState()), Listen: ":443", TLS: &tls.Config{}, Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w, q := httptest.NewRecorder(), httptest.NewRequest(
		"POST",
		"https://10.0.0.1/api/v1/login",
		strings.NewReader(`{"token":"`+testToken+`"}`),
	)
	s.ServeHTTP(w, q)
	if text := w.Header().Get("Set-Cookie"); !strings.HasPrefix(text, "__Host-exoswarm-443=") ||
		!strings.Contains(text, "Secure") {
		t.Error(text, w.Body)
	}
}

// TestLoginEnds: a login lasts 24 hours, and the oldest ends when there are too many.
func TestLoginEnds(t *testing.T) {
	l := newLogins("1", testToken)
	now := time.Now()
	first, _, _ := l.exchange(testToken, now)
	if !l.valid(first, now.Add(loginFor-time.Second)) || l.valid(first, now.Add(loginFor)) {
		t.Error("a login does not last 24 hours")
	}
	second, _, _ := l.exchange(testToken, now.Add(time.Second))
	for i := range maxLogins - 1 {
		l.exchange(testToken, now.Add(time.Minute+time.Duration(i)))
	}
	if l.valid(first, now) || !l.valid(second, now) || len(l.open) != maxLogins {
		t.Error("not the oldest login has ended:", len(l.open))
	}
	last, _, _ := l.exchange(testToken, now.Add(loginFor+time.Hour))
	if len(l.open) != 1 || !l.valid(last, now) {
		t.Error("ended logins stay:", len(l.open))
	}
}

// TestHosts: a page of another site that rebinds its name to this machine is refused.
func TestHosts(t *testing.T) {
	f := newFake(fakeState())
	local, err := New(Options{Cluster: f, Listen: "127.0.0.1:8228", Hosts: []string{"Ops.Example"}})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	public, err := New(Options{Cluster: f, Listen: ":8228", TLS: &tls.Config{}, Hosts: []string{"ops.example"}})
	if err != nil {
		t.Fatal(err)
	}
	defer public.Close()
	for _, c := range []struct {
		host          string
		local, public bool
	}{
		{"127.0.0.1:8228", true, true},
		{"127.0.0.1", true, true},
		{"localhost:8228", true, true},
		{"LOCALHOST", true, true},
		{"[::1]:8228", true, true},
		{"10.1.2.3:8228", false, true},
		{"ops.example:1", true, true},
		{"ops.example.:1", true, true},
		{"evil.example:8228", false, false},
		{"localhost.evil.example", false, false},
		{"127.0.0.1.evil.example", false, false},
		{"127.0.0.1:8228.evil.example", false, false},
		{"localhost:8228.evil.example", false, false},
		{"[::1]:8228.evil.example", false, false},
		{"[::1].evil.example", false, false},
		{"[::1]evil.example:80", false, false},
		{"[127.0.0.1", false, false},
		{"127.0.0.1]", false, false},
		{"[::1%.evil.example]:80", false, false},
		{"ops.example:1.evil.example", false, false},
		{"127.0.0.1:99999", false, false},
		{"user@localhost:80", false, false},
		{"", false, false},
	} {
		for s, want := range map[*Server]bool{local: c.local, public: c.public} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Host = c.host
			s.ServeHTTP(w, r)
			if got := w.Code == http.StatusOK; got != want {
				t.Errorf("host %q of a server at %s: status %d", c.host, s.o.Listen, w.Code)
			}
		}
	}
}

// TestOrigin: a page of another site cannot log in or out with the browser's cookies.
func TestOrigin(t *testing.T) {
	r := opened(t, newFake(fakeState()), nil)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
	} {
		for _, method := range []string{"POST", "DELETE"} {
			if res, _ := r.do(t, method, "api/v1/login", `{"token":"`+testToken+`"}`,
				headers...); res.status != http.StatusForbidden {
				t.Errorf("%s with %v: %d", method, headers, res.status)
			}
		}
	}
	if res, _ := r.do(t, "POST", "api/v1/login", `{"token":"`+testToken+`"}`, "Sec-Fetch-Site",
		"same-origin"); res.status != http.StatusNoContent {
		t.Error("from its own page:", res.status)
	}
}

// TestHeaders: every answer has the headers of security, errors too.
func TestHeaders(t *testing.T) {
	r := opened(t, newFake(fakeState()), nil)
	for _, path := range []string{"", "api/v1/state", "api/v1/nosuch", "nosuch", site().folder + "/app.js"} {
		res, _ := r.do(t, "GET", path, "")
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := res.header.Get(name); got != want {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
		if res.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other origins may read it", path)
		}
	}
	for _, word := range []string{
		"default-src 'none'", "require-trusted-types-for 'script'",
		"frame-ancestors 'none'",
	} {
		if !strings.Contains(policy, word) {
			t.Errorf("the policy lacks %s", word)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Error("the policy allows what is unsafe")
	}
}

// TestProxy: the header with the user counts from a trusted proxy alone.
func TestProxy(t *testing.T) {
	s, err := New(Options{
		Cluster: newFake(fakeState()), Listen: ":8228", BehindProxy: true, AuthHeader: "X-User", ProxySecret: testToken,
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for from, want := range map[string]int{
		"10.0.0.7:1": 200, "[::ffff:10.0.0.7]:1": 200, "10.0.1.7:1": 401, "127.0.0.1:1": 401, "nonsense": 401,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "http://10.0.0.1/api/v1/login", nil)
		r.RemoteAddr = from
		r.Header.Set("X-User", "anna")
		r.Header.Set(ProxyHeader, testToken)
		s.ServeHTTP(w, r)
		if w.Code != want || want == 200 && !strings.Contains(w.Body.String(), `"anna"`) {
			t.Errorf("from %s: %d %s", from, w.Code, w.Body)
		}
	}
	for _, secret := range []string{"", testToken[1:], testToken + "x"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "http://10.0.0.1/api/v1/login", nil)
		r.RemoteAddr = "10.0.0.7:1"
		r.Header.Set("X-User", "anna")
		r.Header.Set(ProxyHeader, secret)
		if s.ServeHTTP(w, r); w.Code != 401 {
			t.Errorf("another process of the machine, with the secret %q: %d %s", secret, w.Code, w.Body)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "http://10.0.0.1/api/v1/login", nil)
	r.RemoteAddr = "10.0.0.7:1"
	r.Header.Set(ProxyHeader, testToken)
	if s.ServeHTTP(w, r); w.Code != 401 {
		t.Error("without the header:", w.Code)
	}
}

// TestPrefix: the server works below a path, behind a proxy that strips it and one that does not.
func TestPrefix(t *testing.T) {
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Prefix = "/a/b/" })
	for path, want := range map[string]int{
		"a/b": 308, "a/b/": 200, "": 200, "a/b/api/v1/openapi.json": 200, "api/v1/openapi.json": 200, "a/bc": 404,
		"a/b/" + site().folder + "/app.js": 200,
	} {
		if res, _ := r.do(t, "GET", path, ""); res.status != want {
			t.Errorf("%s: %d, want %d", path, res.status, want)
		}
	}
	if got := r.s.LoginURL(""); !strings.Contains(got, "/a/b/#t=") {
		t.Error(got)
	}
	for name, a := range site().files {
		for _, bad := range []string{`src="/`, `href="/`, `from "/`, `fetch("/`, "http://", "https://"} {
			if !strings.HasPrefix(name, "vendor/") && name != "icon.svg" && strings.Contains(string(a.body), bad) {
				t.Errorf("%s has an absolute address: %s", name, bad)
			}
		}
	}
}

// TestRoutes asks every route and compares the JSON with what the cluster said.
func TestRoutes(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil)
	for path, want := range map[string]string{
		"state":                                  `"jobs_waiting":5`,
		"history?names=agents,shards":            `"step_ns":1000000000`,
		"jobs":                                   `"id":"j1"`,
		"jobs?over=true&pool=cpu":                `"id":"j0"`,
		"jobs/j1":                                `"waits_for":["before-2"]`,
		"jobs/j1/logs":                           `"a row is wrong"`,
		"jobs/j1/explain":                        `"cause":"parents"`,
		"swarms":                                 `"name":"shops"`,
		"swarms/shops":                           `"spec":{`,
		"swarms/s2":                              `"cell":"lif"`,
		"swarms/s1":                              `"name":"shops"`,
		"swarms/shops/explain":                   `"cause":"no_room"`,
		"swarms/shops/decisions?shard=1&limit=2": `"seq":40`,
		"swarms/shops/decisions?before=9&limit=1":    `[{"seq":8`,
		"swarms/shops/shards/1/groups/5/decisions":   `"group":5`,
		"swarms/shops/entities?key=pump-29&limit=2":  `"count":300,"matches":11,"entities":[{"name":"pump-29"`,
		"swarms/shops/shards/1/entries/4?group=3":    `"series":"shop-3"`,
		"swarms/shops/shards/1/at/30?and=31&group=3": `"progress":{"moment":1,"entry":20,"of":30}`,
		"agents":        `"name":"g2"`,
		"agents/g1":     `"exoswarm_swarm_pages"`,
		"tenants":       `"acme"`,
		"nats":          `"EXO_WAIT"`,
		"doctor":        `"nats.sync"`,
		"dead?pool=cpu": `"the disk is full"`,
		"login":         `"version":"test"`,
		"openapi.json":  `"3.1.0"`,
	} {
		res, body := r.get(t, path)
		if res.status != http.StatusOK || !strings.Contains(body, want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %.300s", path, res.status, body)
		}
		if strings.Contains(body, "hunter") {
			t.Errorf("%s has a secret: %s", path, body)
		}
	}
	if _, body := r.get(t, "jobs/j1"); !strings.Contains(body, "12345678901234567890") {
		t.Error("a number has lost digits:", body)
	}
	for path, want := range map[string]int{
		"jobs/none": 404, "swarms/none": 404, "agents/none": 404, "nosuch": 404, "swarms/none/explain": 404,
		"swarms/none/decisions": 404, "swarms/shops/decisions?shard=3": 404,
		"swarms/none/shards/0/at/1": 404, "swarms/shops/shards/3/at/1": 404, "swarms/shops/shards/0/at/0": 400,
		"swarms/shops/shards/x/at/1": 400, "swarms/shops/shards/0/at/1?and=-1": 400,
		"swarms/shops/shards/0/at/1?agents=1001": 400, "swarms/none/shards/0/entries/1": 404,
		"swarms/shops/shards/3/entries/1": 404, "swarms/shops/shards/0/entries/1?group=-2": 400,
		"swarms/shops/shards/3/groups/1/decisions": 404, "swarms/shops/decisions?before=-1": 400,
		"jobs?pool=tpu": 400, "jobs?limit=0": 400, "jobs?limit=1001": 400, "jobs?limit=x": 400,
		"jobs?over=perhaps":               400,
		"swarms/shops/decisions?shard=-1": 400, "history?seconds=9": 400, "history?names=" +
			strings.Repeat("x", 300): 400,
	} {
		if res, body := r.get(t, path); res.status != want || !strings.Contains(body, `"error"`) {
			t.Errorf("%s: %d %s, want %d", path, res.status, body, want)
		}
	}
	if res, _ := r.do(t, "POST", "api/v1/state", "", "Authorization", "Bearer "+testToken); res.status < 400 {
		t.Error("POST of a route that reads:", res.status)
	}
}

// TestFailures: an error of the cluster has a status, and the sentence.
func TestFailures(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil)
	n := 0
	for err, want := range map[error]int{
		jobs.ErrNotFound: 404, jobs.ErrDenied: 403, jobs.ErrUnavailable: 503, errors.New("broken"): 502,
		jobs.Errorf(jobs.CodeInvalid, "wrong"): 400, travel.ErrTrimmed: 410, travel.ErrTooLarge: 422,
		travel.ErrTooFar: 422, travel.ErrClosed: 503, errMoment: 504, errNoPast: 404,
	} {
		n++
		wrapped := fmt.Errorf("asking: %w", err)
		f.fail.Store(&wrapped)
		if res, body := r.get(t, fmt.Sprintf("jobs/j%d", n)); res.status != want ||
			!strings.Contains(body, "asking: ") {
			t.Errorf("%v: %d %s", err, res.status, body)
		}
	}
}

// TestShared: 50 viewers cause as many questions to the cluster as one.
func TestShared(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil)
	count := func(viewers int, id string) (asked, watched int64) {
		before, beforeWatched := f.asked.Load(), f.watched.Load()
		var all sync.WaitGroup
		for range viewers {
			all.Go(func() {
				s := r.listen(t, true)
				defer s.close()
				s.next(t)
				for _, path := range []string{"jobs/" + id, "jobs/" + id + "/logs", "jobs?limit=" + id[1:], "doctor"} {
					if res, _ := r.get(t, path); res.status != http.StatusOK {
						t.Errorf("%s: %d", path, res.status)
					}
				}
			})
		}
		all.Wait()
		return f.asked.Load() - before, f.watched.Load() - beforeWatched
	}
	one, _ := count(1, "j11")
	fifty, _ := count(50, "j12")
	if one != 5 || fifty != 4 { // one for each pool; the doctor's answer lasts 10 s
		t.Errorf("%d questions for one viewer, %d for 50", one, fifty)
	}
	testkit.Until(t, "nobody watches", func() bool { return f.watchers.Load() == 0 })
}

// TestOneFollower: all streams share one follower of the cluster, which lasts as long as a stream.
func TestOneFollower(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil, func(s *Server) { s.events.every = time.Millisecond })
	if f.watchers.Load() != 0 {
		t.Error("the cluster is watched before there is a stream")
	}
	var streams []*eventStream
	for i := range 50 {
		s := r.listen(t, i%2 == 0)
		defer s.close()
		streams = append(streams, s)
		s.next(t)
	}
	if f.watched.Load() != 1 || f.watchers.Load() != 1 {
		t.Errorf("%d calls of Watched for 50 streams", f.watched.Load())
	}
	before := f.waits.Load()
	f.next(func(s *cluster.State) { s.Numbers = map[string]float64{"marked": 1} })
	for _, s := range streams {
		for !strings.Contains(s.next(t), "marked") {
		}
	}
	testkit.Until(t, "the next question", func() bool { return f.waits.Load() > before })
	if n := f.waits.Load() - before; n != 1 {
		t.Errorf("%d calls of Wait for one frame and 50 streams", n)
	}
	for _, s := range streams {
		s.close()
	}
	testkit.Until(t, "nobody watches", func() bool { return f.watchers.Load() == 0 })
}

// TestRate: frames come at most once in the time between them, the newest one then.
func TestRate(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil, func(s *Server) { s.events.every = 300 * time.Millisecond })
	s := r.listen(t, true)
	defer s.close()
	s.next(t)
	begin := time.Now()
	stop := tick(f, nil)
	defer stop()
	for range 100 {
		f.next(nil)
	}
	s.next(t)
	s.next(t)
	if d := time.Since(begin); d < 400*time.Millisecond {
		t.Errorf("two frames within %v", d)
	}
}

// TestSlowReader: a browser that never reads is dropped, and delays no other stream.
func TestSlowReader(t *testing.T) {
	testkit.OnlyLong(t)
	state := fakeState()
	big := make([]cluster.Tenant, 20_000)
	for i := range big {
		big[i].Tenant = fmt.Sprintf("tenant-%d-%x", i, i*7919)
	}
	state.Tenants = big
	f := newFake(state)
	r := opened(t, f, nil, func(s *Server) { s.events.every = 5 * time.Millisecond })
	stop := tick(f, nil)
	defer stop()
	fast := r.listen(t, true)
	defer fast.close()
	fast.next(t)
	u, _ := url.Parse(r.base)
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", u.Host, testToken)
	streams := func() int {
		r.s.events.mu.Lock()
		defer r.s.events.mu.Unlock()
		return r.s.events.streams
	}
	testkit.Until(t, "the slow stream", func() bool { return streams() == 2 })
	frames := 0
	testkit.Until(t, "the end of the browser that does not read", func() bool {
		fast.next(t)
		frames++
		return streams() < 2
	})
	if frames < 2 {
		t.Error("the fast stream got no frame while the slow one was there")
	}
}

// TestLongStream: a stream without frames stays open, with HTTP/2 too, and ends with its login.
func TestLongStream(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newFake(fakeState())
			s, err := New(Options{Cluster: f, Listen: "127.0.0.1:443", TLS: &tls.Config{}, Token: testToken})
			if err != nil {
				t.Fatal(err)
			}
			s.events.every, s.events.beat, s.events.within = time.Millisecond, 4*time.Second, 2*time.Second
			h := httptest.NewUnstartedServer(s)
			h.EnableHTTP2 = version == "HTTP/2.0"
			h.StartTLS()
			defer h.Close()
			defer s.Close()
			value, _, _ := s.logins.exchange(testToken, time.Now())
			q, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+"/api/v1/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			q.AddCookie(&http.Cookie{Name: "__Host-exoswarm-443", Value: value})
			res, err := h.Client().Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			stream := &eventStream{res: res, lines: bufio.NewReader(res.Body)} // the transport unpacks it
			if res.Proto != version {
				t.Fatal(res.Proto)
			}
			stream.next(t)
			<-time.After(2500 * time.Millisecond) // the time is the thing tested: it is longer than within
			f.next(nil)
			stream.next(t)
			s.logins.end(value)
			for {
				if _, err := stream.lines.ReadString('\n'); err != nil {
					return
				}
			}
		})
	}
}

// TestStreams: there is a largest number of streams.
func TestStreams(t *testing.T) {
	f := newFake(fakeState())
	r := opened(t, f, nil)
	h := r.s.events
	for range maxStreams {
		if !h.join() {
			t.Fatal("a stream is refused")
		}
	}
	if res, body := r.get(t, "events"); res.status != http.StatusServiceUnavailable ||
		res.header.Get("Retry-After") == "" {
		t.Error(res.status, body)
	}
	for range maxStreams {
		h.leave()
	}
	testkit.Until(t, "nobody watches", func() bool { return f.watchers.Load() == 0 })
}

type eventStream struct {
	res   *http.Response
	lines *bufio.Reader
}

func (r *running) listen(t *testing.T, packed bool) *eventStream {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), "GET", r.base+"api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+testToken)
	q.Header.Set("Accept-Encoding", "identity")
	if packed {
		q.Header.Set("Accept-Encoding", "br, gzip;q=0.9")
	}
	res, err := r.http.Do(q) //nolint:bodyclose // eventStream.close closes it
	if err != nil {
		t.Error(err)
		return nil
	}
	s := &eventStream{res: res, lines: bufio.NewReader(res.Body)}
	if got := res.Header.Get("Content-Encoding") == "gzip"; got != packed {
		t.Error("the encoding is", res.Header.Get("Content-Encoding"))
	}
	if packed {
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Error(err)
			return s
		}
		s.lines = bufio.NewReader(z)
	}
	return s
}

func (s *eventStream) next(t *testing.T) string {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			t.Error("the stream has ended:", err)
			return "marked"
		}
		if data, found := strings.CutPrefix(line, "data: "); found {
			if !json.Valid([]byte(data)) {
				t.Error("a frame is no JSON:", data)
			}
			return data
		}
	}
}

func (s *eventStream) close() { _ = s.res.Body.Close() }
