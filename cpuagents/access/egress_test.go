package access

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func guard(t testing.TB, allow ...string) *Guard {
	t.Helper()
	g, err := NewGuard(allow)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	return g
}

func TestAllowList(t *testing.T) {
	for _, text := range []string{
		"", "*", "*.", "a b", "http://x", "x/y", "user@x", "x:0", "x:99999", "x:y", "fe80::1%eth0", "2130706433",
		"0x7f.1", "127.1", "a..b", "ümlaut.de",
		"0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "*.10.0.0.1", strings.Repeat("a", 64) + ".de",
	} {
		if _, err := NewGuard([]string{text}); err == nil {
			t.Errorf("%q is an entry", text)
		}
	}
	g := guard(t, "Example.com.", "*.data.example", "api.example:8443", "10.1.0.0/16", "[fd00::]/8", "127.0.0.1:9000",
		"::ffff:192.168.1.1")
	for text, want := range map[string]bool{
		"http://example.com/": true, "https://EXAMPLE.com:443/x?y": true, "https://example.com.:443/": true,
		"https://example.com:8443/": false, "http://example.com:443/": false, "http://www.example.com/": false,
		"http://notexample.com/":  false,
		"https://a.data.example/": true, "https://a.b.data.example/": true, "https://data.example/": false,
		"https://xdata.example/":    false,
		"https://api.example:8443/": true, "https://api.example/": false,
		"http://10.1.2.3/": true, "http://10.1.2.3:1234/": true, "http://10.2.0.1/": false,
		"http://[fd12::1]:99/": true, "http://[fc00::1]/": false,
		"http://127.0.0.1:9000/": true, "http://127.0.0.1/": false, "http://[::ffff:127.0.0.1]:9000/": true,
		"http://192.168.1.1/": true,
		"ftp://example.com/":  false, "file:///etc/passwd": false, "http:///x": false, "http://u:p@example.com/": false,
		"//example.com/":                   false,
		"http://example.com@evil.example/": false, "http://example.com%00.evil.example/": false,
		"http://2130706433/": false, "http://0x7f000001/": false,
		"http://[fd00::1%25eth0]/": false, "http://example.com:0/": false, "unix:example.com": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			if want {
				t.Errorf("%s: %v, want a URL that can be parsed", text, err)
			}
			continue
		}
		if err := g.Check(u); (err == nil) != want || err != nil && !Refused(err) {
			t.Errorf("%s: %v, want allowed: %v", text, err, want)
		}
	}
	if err := (&Guard{}).Check(&url.URL{Scheme: "https", Host: "example.com"}); !errors.Is(err, ErrHost) {
		t.Errorf("the zero guard: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	g := guard(t, "10.1.0.0/16", "168.63.0.0/16", "[fd00::]/8", "100.96.0.0/11", "127.0.0.1:9000", "169.254.0.0/16",
		"[fe80::]/10", "192.168.7.7")
	for text, want := range map[string]bool{
		"8.8.8.8:443": true, "[2606:4700::1111]:443": true, "[::ffff:8.8.8.8]:443": true, "[64:ff9b::808:808]:80": true,
		"10.1.9.9:5432": true, "[::ffff:10.1.9.9]:1": true, "[64:ff9b::a01:909]:1": true, "[2002:a01:909::1]:1": true,
		"[fd00:ec2::253]:80": true, "[fd00:ec2::254]:80": false,
		"127.0.0.1:9000": true, "127.0.0.1:80": false, "192.168.7.7:80": true, "192.168.7.7:22": false,
		"10.2.0.1:80": false, "[::ffff:10.2.0.1]:80": false, "[64:ff9b::a02:1]:80": false, "[2002:a02:1::]:80": false,
		"[64:ff9b:1::1]:80": false,
		"[::7f00:1]:9000":   false, "[::]:80": false, "0.0.0.0:80": false, "0.1.2.3:80": false, "[::1]:9000": false,
		"127.0.0.2:9000":     false,
		"169.254.169.254:80": false, "[::ffff:169.254.169.254]:80": false, "[64:ff9b::a9fe:a9fe]:80": false,
		"[2002:a9fe:a9fe::]:80": false,
		"[fe80::1]:80":          false, "[fe80::1%25eth0]:80": false, "[fd00::1%eth0]:80": false, "224.0.0.1:80": false,
		"[ff02::1]:80": false, "255.255.255.255:80": false,
		"100.100.100.200:80": false, "168.63.129.16:80": false, "[::ffff:168.63.129.16]:32526": false,
		"100.64.0.1:80": false, "192.0.0.192:80": false, "198.18.0.1:80": false, "240.0.0.1:80": false,
		"172.16.0.1:80": false,
		"[2001::1]:80":  false, "[2001:db8::1]:80": false, "[fec0::1]:80": false, "[100::1]:80": false,
		"[fc00::1]:80": false,
	} {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			if want {
				t.Errorf("%s: %v, want an address that can be parsed", text, err)
			}
			continue
		}
		if err := g.CheckAddress(ap); (err == nil) != want || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want allowed: %v", text, err, want)
		}
	}
	if err := g.CheckAddress(netip.AddrPort{}); !errors.Is(err, ErrAddress) {
		t.Errorf("g.CheckAddress: %v, want %v", err, ErrAddress)
	}
}

// resolver answers every name with an address, as a name server of an attacker would.
func resolver(t *testing.T, answer [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("net.ListenPacket: %v, want no error", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{
					Name: q.Name, Class: q.Class,
					TTL: 0,
				}, Body: &dnsmessage.AResource{A: answer}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// getHost fetches a URL and returns the body.
func getHost(t *testing.T, g *Guard, follow bool, target string, private ...string) (string, int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := g.Client(follow, private...)
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatalf("http.NewRequestWithContext: %v, want no error", err)
	}
	for _, h := range private {
		r.Header.Set(h, "secret")
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), resp.StatusCode, err
}

// TestResolved: a name on the list gains nothing from resolving to the machine itself, unless that
// is on the list too.
func TestResolved(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "inside")
	}))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatalf("net.SplitHostPort: %v, want no error", err)
	}
	target := "http://good.test:" + port + "/"
	g := guard(t, "good.test:"+port)
	g.resolver = resolver(t, [4]byte{127, 0, 0, 1})
	if body, _, err := getHost(t, g, true, target); !errors.Is(err, ErrAddress) || body != "" {
		t.Errorf("body %q, error %v; want none and %v", body, err, ErrAddress)
	}
	open := guard(t, "good.test:"+port, "127.0.0.0/8")
	open.resolver = g.resolver
	if body, _, err := getHost(t, open, true, target); err != nil || body != "inside" {
		t.Errorf("body %q, error %v; want inside", body, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if c, err := g.DialContext(ctx, "tcp", "good.test:"+port); !errors.Is(err, ErrAddress) {
		t.Errorf("%v, error %v, want %v", c, err, ErrAddress)
	}
	if c, err := open.DialContext(ctx, "tcp", "good.test:"+port); err != nil {
		t.Errorf("open.DialContext: %v, want no error", err)
	} else {
		_ = c.Close()
	}
	if c, err := open.DialContext(ctx, "tcp", "evil.test:"+port); !errors.Is(err, ErrHost) {
		t.Errorf("%v, error %v, want %v", c, err, ErrHost)
	}
}

// TestRedirects: each redirect is checked like a request, and what is private stays with the host
// it was for.
func TestRedirects(t *testing.T) {
	seen := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Key") + r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "other")
	}))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/to":
			http.Redirect(w, r, r.URL.Query().Get("u"), http.StatusFound)
		default:
			_, _ = io.WriteString(w, "here")
		}
	}))
	defer srv.Close()
	to := func(u string) string { return srv.URL + "/to?u=" + url.QueryEscape(u) }
	both := guard(t, srv.Listener.Addr().String(), other.Listener.Addr().String())
	one := guard(t, srv.Listener.Addr().String())
	if body, _, err := getHost(t, both, true, to(other.URL), "X-Key", "Authorization"); err != nil || body != "other" {
		t.Errorf("body %q, error %v; want other", body, err)
	}
	if got := <-seen; got != "" {
		t.Errorf("another host has seen %q", got)
	}
	if body, _, err := getHost(t, one, true, to(srv.URL+"/x")); err != nil || body != "here" {
		t.Errorf("body %q, error %v; want here", body, err)
	}
	for _, u := range []string{
		other.URL, "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://[::1]/",
		"file:///etc/passwd", "http://u:p@" + srv.Listener.Addr().String() + "/",
		"http://0.0.0.0/", "http://localhost/", "gopher://x/",
	} {
		if body, _, err := getHost(t, one, true, to(u)); err == nil {
			t.Errorf("followed to %s: %q", u, body)
		}
	}
	if _, _, err := getHost(t, one, true, srv.URL+"/loop"); !errors.Is(err, ErrRedirect) {
		t.Errorf("get: %v, want %v", err, ErrRedirect)
	}
	if _, status, err := getHost(t, one, false, srv.URL+"/loop"); err != nil || status != http.StatusFound {
		t.Errorf("a loop that is not followed: status %d, %v, want 302", status, err)
	}
	select {
	case got := <-seen:
		t.Errorf("the other host was asked: %q", got)
	default:
	}
}

// FuzzCheck: no text of a URL panics the check, and what it allows is a host of the list.
func FuzzCheck(f *testing.F) {
	g := guard(f, "example.com", "*.data.example", "10.1.0.0/16")
	for _, s := range []string{
		"http://example.com", "http://[::ffff:a01:1]/", "http://10.1.1.1:1",
		"http://a.data.example./", "http://example.com\\@x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || g.Check(u) != nil {
			return
		}
		h := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		a, aerr := netip.ParseAddr(h)
		if h != "example.com" && !strings.HasSuffix(h, ".data.example") &&
			(aerr != nil || !netip.MustParsePrefix("10.1.0.0/16").Contains(a.Unmap())) {
			t.Fatalf("%q is allowed", text)
		}
	})
}
