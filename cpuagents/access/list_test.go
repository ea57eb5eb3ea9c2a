package access

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// allowed reports whether a guard lets a URL through. A refusal must be one of this package's.
func allowed(t *testing.T, g *Guard, text string) bool {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("%q: url.Parse: %v, want no error", text, err)
	}
	err = g.Check(u)
	if err != nil && !Refused(err) {
		t.Errorf("%q: %v is not a refusal", text, err)
	}
	return err == nil
}

// TestRefused: an error is a refusal if it wraps one of this package's, and no other is.
func TestRefused(t *testing.T) {
	for _, err := range []error{ErrHost, ErrAddress, ErrURL, ErrRedirect, fmt.Errorf("x: %w", ErrRedirect)} {
		if !Refused(err) {
			t.Errorf("%v is no refusal", err)
		}
	}
	for _, err := range []error{nil, errors.New("connection reset"), http.ErrUseLastResponse} {
		if Refused(err) {
			t.Errorf("%v is a refusal", err)
		}
	}
}

// TestListOfTenants: an entry with a tenant is for the jobs of that tenant, one for all is for
// every job, one without is for jobs without a tenant.
func TestListOfTenants(t *testing.T) {
	g := guard(t, "own.example", "tenant=a,host=a.example", "tenant=a,host=10.1.0.0/16", "tenant=b,host=b.example:81",
		"tenant=*,host=all.example")
	for tenant, want := range map[string]string{
		"": "own all", "default": "own all", "a": "a 10.1 all", "b": "b all", "c": "all",
	} {
		own := g.For(tenant)
		var got []string
		for name, target := range map[string]string{
			"own": "http://own.example/", "a": "http://a.example/", "10.1": "http://10.1.2.3/",
			"b": "http://b.example:81/", "all": "https://all.example/",
		} {
			if allowed(t, own, target) {
				got = append(got, name)
			}
		}
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("tenant %q reaches %v, want %s", tenant, got, want)
		}
		for _, name := range got {
			if !strings.Contains(" "+want+" ", " "+name+" ") {
				t.Errorf("tenant %q reaches %s", tenant, name)
			}
		}
	}
	if !allowed(t, g, "http://own.example/") || allowed(t, g, "http://a.example/") {
		t.Error("the guard itself is not the guard of jobs without a tenant")
	}
	if (*Guard)(nil).For("a") != nil {
		t.Error("a guard that is nil has one for a tenant")
	}
	for _, text := range []string{
		"tenant=a", "tenant=a,x.example", "tenant=a,name=x.example", "tenant=,host=x.example",
		"tenant=a b,host=x.example", "tenant=a,host=", "tenant=a,host=x/y",
	} {
		if _, err := NewGuard([]string{text}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: New: %v, want %q in its text", text, err, text)
		}
	}
}

// TestHostNames: a name has 1 to 253 characters in labels of 1 to 63, of ASCII letters, digits, '-'
// and '_', and its last label does not begin with a digit.
func TestHostNames(t *testing.T) {
	label := func(n int) string { return strings.Repeat("a", n) }
	long := strings.Join([]string{label(63), label(63), label(63), label(61)}, ".") // 253 characters
	for _, host := range []string{
		"a", "z", "a0", "a9", "0a.de", "9.de", "a-b_c.de", "-", "_", "azAZ09.de",
		label(63) + ".de", long, long + ".", "a.zz", "x.a9",
	} {
		if _, err := NewGuard([]string{host}); err != nil {
			t.Errorf("%q: New: %v, want no error", host, err)
		}
	}
	for _, host := range []string{
		"", ".", label(64), label(64) + ".de", long + "a", long + "aa", "a.", "a..de", ".de", "a/b", "a:b", "a`b",
		"a{b", "a,b", "a.b^c", "a b", "a@b", "ä", "a.0", "a.9x", "0", "9", "*", "*.",
	} {
		ok := host == "a."
		if _, err := NewGuard([]string{host}); (err == nil) != ok {
			t.Errorf("%q: %v, want it accepted: %t", host, err, ok)
		}
	}
	// Characters that a name does not have.
	for r := rune(1); r < 128; r++ {
		in := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
		if _, err := canonical("a" + string(r) + "a"); (err == nil) != in {
			t.Errorf("%q: %v, want it accepted: %t", r, err, in)
		}
	}
	if _, err := canonical(long + "a"); err == nil || !strings.Contains(err.Error(), "253") {
		t.Errorf("canonical: %v, want %q in its text", err, "253")
	}
	if _, err := canonical(""); err == nil || !strings.Contains(err.Error(), "253") {
		t.Errorf("canonical: %v, want %q in its text", err, "253")
	}
}

// TestPorts: an entry without a port is for the port of the scheme, one with a port for that alone.
func TestPorts(t *testing.T) {
	g := guard(t, "a.example", "b.example:81", "c.example:65535", "10.0.0.1", "10.0.0.0/8", "d.example:1")
	for text, want := range map[string]bool{
		"http://a.example/": true, "http://a.example:80/": true, "http://a.example:79/": false,
		"http://a.example:81/": false, "http://a.example:443/": false,
		"https://a.example/": true, "https://a.example:443/": true, "https://a.example:442/": false,
		"https://a.example:444/": false, "https://a.example:80/": false,
		"http://b.example:81/": true, "http://b.example/": false, "http://b.example:82/": false,
		"https://c.example:65535/": true, "http://c.example:65534/": false,
		"http://d.example:1/": true, "http://a.example:65536/": false, "http://a.example:65616/": false,
		"http://b.example:65617/": false,
		// it is named, so its network allows no other port
		"http://10.0.0.1/": true, "http://10.0.0.1:8080/": false,
		"http://10.0.0.2:8080/": true,
	} {
		if allowed(t, g, text) != want {
			t.Errorf("%s: want allowed: %v", text, want)
		}
	}
	for text, want := range map[string]bool{
		"x.example:65535": true, "x.example:65536": false, "x.example:1": true,
		"x.example:0": false, "x.example:": false,
	} {
		if _, err := NewGuard([]string{text}); (err == nil) != want {
			t.Errorf("%s: %v, want it accepted: %t", text, err, want)
		}
	}
	alone := guard(t, "192.168.7.7", "192.168.7.8:81")
	for text, want := range map[string]bool{
		"192.168.7.7:80": true, "192.168.7.7:443": true, "192.168.7.7:79": false, "192.168.7.7:81": false,
		"192.168.7.7:442": false, "192.168.7.7:444": false,
		"192.168.7.8:81": true, "192.168.7.8:80": false, "[2606:4700::1111%eth0]:443": false,
		"[2002:c0a8:707::1]:80": true, "[2002:c0a8:708::1]:80": false,
	} {
		if err := alone.CheckAddress(netip.MustParseAddrPort(text)); (err == nil) != want || err != nil &&
			!errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want allowed: %v", text, err, want)
		}
	}
}

// TestURLs: only http and https with a host and without a user are fetched.
func TestURLs(t *testing.T) {
	g := guard(t, "a.example")
	for name, u := range map[string]*url.URL{
		"nothing": nil, "no host": {Scheme: "http", Path: "/x"},
		"opaque":         {Scheme: "http", Host: "a.example", Opaque: "//b.example/"},
		"a user":         {Scheme: "http", Host: "a.example", User: url.User("u")},
		"another scheme": {Scheme: "ftp", Host: "a.example"}, "no scheme": {Host: "a.example"},
	} {
		if err := g.Check(u); !errors.Is(err, ErrURL) {
			t.Errorf("%s: g.Check: %v, want %v", name, err, ErrURL)
		}
		if u != nil && u.Host == "" && g.Check(u).Error() != ErrURL.Error() {
			t.Errorf("%s: %v, want %v alone", name, g.Check(u), ErrURL)
		}
	}
	if err := g.Check(&url.URL{Scheme: "http", Host: "a.example"}); err != nil {
		t.Errorf("g.Check: %v, want no error", err)
	}
}

// TestControl: a socket of another kind than TCP, and an address that cannot be read, are refused
// before the connection.
func TestControl(t *testing.T) {
	g := guard(t, "10.0.0.0/8", "[fd00::]/8")
	for network, want := range map[string]bool{"tcp4": true, "udp4": false, "tcp": false, "unix": false} {
		if err := g.control(network, "10.0.0.1:80", nil); (err == nil) != want || err != nil &&
			!errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want it accepted: %t, or %v", network, err, want, ErrAddress)
		}
	}
	if err := g.control("tcp6", "[fd00::1]:80", nil); err != nil {
		t.Errorf("g.control: %v, want no error", err)
	}
	for _, address := range []string{"", "10.0.0.1", "a.example:80", "127.0.0.1:80", "[::1]:80"} {
		if err := g.control("tcp4", address, nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: g.control: %v, want %v", address, err, ErrAddress)
		}
	}
}

// TestDial: what is not HTTP is checked as a URL is, and always needs its port on the list.
func TestDial(t *testing.T) {
	g := guard(t, "a.example", "b.example:5432", "10.0.0.1", "10.0.0.0/8")
	for address, want := range map[string]error{
		"a.example": ErrURL, "a..b:80": ErrURL, "a.example:0": ErrURL, "a.example:65536": ErrURL, "a.example:x": ErrURL,
		"a.example:80": ErrHost, "a.example:443": ErrHost,
		"b.example:5433": ErrHost, "c.example:5432": ErrHost, "10.0.0.1:5432": ErrHost, "11.0.0.1:5432": ErrHost,
	} {
		c, err := g.DialContext(t.Context(), "tcp", address)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, error %v, want %v", address, c, err, want)
		}
	}
}

// TestDialNetwork: an address of a network on the list is reached on any port, a named address
// only on the ports of its entries.
func TestDialNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("net.Listen: %v, want no error", err)
	}
	defer l.Close()
	c, err := guard(t, "127.0.0.0/8").DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("DialContext: %v, want no error", err)
	}
	_ = c.Close()
	for _, g := range []*Guard{guard(t), guard(t, "127.0.0.0/8", "127.0.0.1"), guard(t, "10.0.0.0/8")} {
		if c, err := g.DialContext(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, ErrHost) {
			t.Errorf("%v, error %v, want %v", c, err, ErrHost)
		}
	}
}

// TestRefusedBody: the body of a request that is refused is closed, as a RoundTripper has to.
func TestRefusedBody(t *testing.T) {
	closed := false
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://b.example/",
		closer{strings.NewReader("x"), func() { closed = true }})
	if err != nil {
		t.Fatalf("http.NewRequestWithContext: %v, want no error", err)
	}
	resp, err := guard(t, "a.example").Client(false).Transport.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, ErrHost) || !closed {
		t.Errorf("%v, closed: %v", err, closed)
	}
}

type closer struct {
	io.Reader
	close func()
}

func (c closer) Close() error { c.close(); return nil }

// TestRedirectRules: five redirects are followed and no sixth, none leaves https, and what is
// private goes to one scheme and host only.
func TestRedirectRules(t *testing.T) {
	check := guard(t, "a.example").Client(true, "X-Key").CheckRedirect
	request := func(text string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, text, nil)
		if err != nil {
			t.Fatalf("http.NewRequestWithContext: %v, want no error", err)
		}
		r.Header.Set("X-Key", "secret")
		r.Header.Set("X-Other", "plain")
		return r
	}
	via := func(n int) (all []*http.Request) {
		for range n {
			all = append(all, request("https://a.example/"))
		}
		return all
	}
	if err := check(request("https://a.example/x"), via(maxRedirects)); err != nil || maxRedirects != 5 {
		t.Errorf("redirect %d: %v", maxRedirects, err)
	}
	if err := check(request("https://a.example/x"), via(maxRedirects+1)); !errors.Is(err, ErrRedirect) ||
		!strings.Contains(err.Error(), "more than 5 ") {
		t.Errorf("redirect %d: %v", maxRedirects+1, err)
	}
	if err := check(request("http://a.example/"), via(1)); !errors.Is(err, ErrRedirect) ||
		!strings.Contains(err.Error(), "from https to http") {
		t.Errorf("from https: %v", err)
	}
	if err := check(request("http://a.example/"), []*http.Request{request("http://a.example/")}); err != nil {
		t.Errorf("from http to http: %v", err)
	}
	if err := guard(t).Client(false).CheckRedirect(request("https://a.example/"), via(1)); !errors.Is(err,
		http.ErrUseLastResponse) {
		t.Errorf("not followed: %v", err)
	}
	for to, want := range map[string]string{
		"https://a.example/y": "secret", "https://b.example/": "",
		"https://a.example:8443/": "",
	} {
		r := request(to)
		if err := check(r, via(1)); err != nil || r.Header.Get("X-Key") != want || r.Header.Get("X-Other") != "plain" {
			t.Errorf("%s: headers %v, error %v; want X-Key %q and X-Other plain", to, r.Header, err, want)
		}
	}
	r := request("https://a.example/")
	if err := check(r, []*http.Request{request("http://a.example/")}); err != nil || r.Header.Get("X-Key") != "" {
		t.Errorf("from http to https: %v, %v", r.Header, err)
	}
	// The host counts that the first request was for, not the last one.
	r = request("https://b.example/")
	if err := check(r, []*http.Request{request("https://a.example/"), request("https://b.example/")}); err != nil ||
		r.Header.Get("X-Key") != "" {
		t.Errorf("a second redirect: %v, %v", r.Header, err)
	}
}
