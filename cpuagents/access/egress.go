// Package access holds what the jobs of a CPU agent may use: hosts (Guard), secrets (Store), the
// resources bound to one tenant, and the memory of inputs (Memory). It also classes errors: whose
// fault an error is decides whether the queue retries a job.
package access

// This file lets a CPU agent reach the hosts that its operator named, and nothing else. Names are
// checked for every request and every redirect; addresses are checked where the connection is made,
// after the name has been resolved, so that a name that resolves to something else the next time
// gains nothing.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Conditions that a caller can act on. None of them passes by waiting.
var (
	// ErrHost: the host or port is not on the operator's list.
	ErrHost = errors.New("this agent may not reach it: its operator allows it with --egress")
	// ErrAddress: the host's address is private or special, and no network of the operator's list
	// holds it.
	ErrAddress = errors.New("its address is not a public one: its operator allows it with --egress NETWORK")
	// ErrURL: the URL is not one that is fetched.
	ErrURL = errors.New("use http://HOST/PATH or https://HOST/PATH, without a user in it")
	// ErrRedirect: a redirect that is not followed.
	ErrRedirect = errors.New("it redirects where this agent does not follow")
)

// Refused says whether err is one of this package's: the same request will be refused again.
func Refused(err error) bool {
	for _, e := range []error{ErrHost, ErrAddress, ErrURL, ErrRedirect} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// maxRedirects is what browsers and curl are asked for at most in practice, and few enough to end a
// loop soon.
const maxRedirects = 5

type rule struct {
	host string // lower case; *.NAME for everything below NAME
	port uint16 // 0: the scheme's own
}

// Guard checks and makes connections. The zero value allows nothing. Its methods may be called from
// several goroutines.
type Guard struct {
	rules    []rule
	networks []netip.Prefix
	resolver *net.Resolver // nil: the system's
	bound    []boundHosts  // the entries of all tenants, for For
	counts   *counts       // shared with the guards that For returns; nil: requests are not counted
}

type boundHosts struct {
	tenant string
	guard  *Guard // with the entry alone
}

// NewGuard returns a guard that allows these: HOST or HOST:PORT, where HOST may be *.NAME for
// everything below NAME, and without a port only the scheme's own is meant; NETWORK as 10.1.0.0/16
// or [fd00::]/8 for hosts named by an address there on any port, and for names on the list that
// resolve to it. Names that resolve to private or special addresses are refused otherwise.
// Link-local, multicast and unspecified addresses cannot be allowed, nor addresses where clouds
// keep the credentials of a machine.
//
// tenant=TENANT,host=ENTRY is for the jobs of a tenant, tenant=*,host=ENTRY for the jobs of all
// tenants; an entry without tenant= is for jobs without one. The guard itself serves jobs without a
// tenant.
func NewGuard(allow []string) (*Guard, error) {
	var all []boundHosts
	for _, text := range allow {
		b := boundHosts{guard: &Guard{}}
		entry := text
		if tenant, rest, ok := Cut(text); ok {
			host, is := strings.CutPrefix(rest, "host=")
			if err := Check(tenant); err != nil || !is {
				return nil, fmt.Errorf("--egress %q: write tenant=TENANT,host=HOST", text)
			}
			b.tenant, entry = tenant, host
		}
		if err := b.guard.add(entry); err != nil {
			return nil, fmt.Errorf("--egress %q: %w", text, err)
		}
		all = append(all, b)
	}
	return (&Guard{bound: all, counts: newCounts()}).For(""), nil
}

// For returns what the jobs of a tenant may reach; nil for a guard that is nil.
func (g *Guard) For(tenant string) *Guard {
	if g == nil {
		return nil
	}
	own := &Guard{resolver: g.resolver, bound: g.bound, counts: g.counts}
	for _, b := range g.bound {
		if Holds(b.tenant, tenant) {
			own.rules = append(own.rules, b.guard.rules...)
			own.networks = append(own.networks, b.guard.networks...)
		}
	}
	return own
}

func (g *Guard) add(text string) error {
	if p, err := netip.ParsePrefix(strings.NewReplacer("[", "", "]", "").Replace(text)); err == nil {
		if p.Addr().Is4In6() {
			return errors.New("write the network in IPv4")
		}
		if p = p.Masked(); p.Bits() == 0 {
			return errors.New("a network of all addresses allows nothing that is not allowed already but what is " +
				"private: name those networks")
		}
		g.networks = append(g.networks, p)
		return nil
	}
	host, port := text, uint64(0)
	if h, p, err := net.SplitHostPort(text); err == nil {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return fmt.Errorf("port %q: use 1 to 65535", p)
		}
		host = h
	}
	plain := strings.TrimPrefix(host, "*.")
	name, err := canonical(plain)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(name); err == nil && plain != host {
		return errors.New("an address has nothing below it")
	}
	g.rules = append(g.rules, rule{host: strings.TrimSuffix(host, plain) + name, port: uint16(port)})
	return nil
}

// canonical is a host as it is compared: lower case, without a dot at its end, an address in its
// one form.
func canonical(host string) (string, error) {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", fmt.Errorf("host %q: an address with a zone is a link's own", host)
		}
		return a.Unmap().String(), nil
	}
	if host == "" || len(host) > 253 {
		return "", fmt.Errorf("host %q: it must have 1 to 253 letters", host)
	}
	digits := true
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return "", fmt.Errorf("host %q is none", host)
		}
		for _, r := range label {
			if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') {
				return "", fmt.Errorf("host %q: write names beyond ASCII as xn--", host)
			}
		}
		digits = label[0] >= '0' && label[0] <= '9'
	}
	if digits { // 127.1, 0x7f.1 and 2130706433 are addresses to some resolvers
		return "", fmt.Errorf("host %q: write an address in its usual form", host)
	}
	return host, nil
}

// Check says whether a URL may be fetched as far as its text says. The error wraps one of this
// package's.
func (g *Guard) Check(u *url.URL) error {
	g = cmp.Or(g, &Guard{})
	if u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Opaque != "" {
		return ErrURL
	}
	host, err := canonical(u.Hostname())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	own := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	port := own
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%w: port %q", ErrURL, p)
		}
		port = uint16(n)
	}
	if g.allows(host, port, port == own) {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil && !g.named(a) && g.inside(a) {
		return nil
	}
	return fmt.Errorf("%s port %d: %w", host, port, ErrHost)
}

// allows says whether a host stands on the list with this port, or without one where that is a
// usual one.
func (g *Guard) allows(host string, port uint16, usual bool) bool {
	for _, r := range g.rules {
		below, wild := strings.CutPrefix(r.host, "*")
		if (r.host == host || wild && strings.HasSuffix(host, below)) && (r.port == port || r.port == 0 && usual) {
			return true
		}
	}
	return false
}

// named says whether an address stands on the list by itself: then the ports of its rules hold, not
// every port.
func (g *Guard) named(a netip.Addr) bool {
	for _, r := range g.rules {
		if r.host == a.String() {
			return true
		}
	}
	return false
}

func (g *Guard) inside(a netip.Addr) bool {
	for _, p := range g.networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// special are the networks that are not the public Internet's (IANA's registries for special
// purposes), except the networks that package netip knows by name.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16",
	"fec0::/10",
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// metadata are the addresses outside the link-local range where clouds keep the credentials of a
// machine, and the broadcast.
var metadata = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"), // Azure's wire server, an address that looks public
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("255.255.255.255"),
}

var (
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
	sixToOne = netip.MustParsePrefix("2002::/16")
)

// embedded is the IPv4 address that a translator on the way would send to, or a itself.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToOne.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// CheckAddress says whether a connection to an address may be made. The error wraps ErrAddress.
func (g *Guard) CheckAddress(ap netip.AddrPort) error {
	g = cmp.Or(g, &Guard{})
	a := ap.Addr()
	if a.Zone() != "" || !a.IsValid() {
		return fmt.Errorf("address %v: %w", a, ErrAddress)
	}
	a = embedded(a)
	never := a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || slices.Contains(metadata, a)
	if !never && (g.inside(a) || g.allows(a.String(), ap.Port(), ap.Port() == 80 || ap.Port() == 443)) {
		return nil
	}
	private := never || a.IsLoopback() || a.IsPrivate() || !a.IsGlobalUnicast()
	for _, p := range special {
		private = private || p.Contains(a)
	}
	if private {
		return fmt.Errorf("address %v: %w", a, ErrAddress)
	}
	return nil
}

// control runs between the making of a socket and its connection, with the address that is
// connected to.
func (g *Guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("network %s: %w", network, ErrAddress)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, ErrAddress)
	}
	return g.CheckAddress(ap)
}

// Client returns a client all of whose connections are checked. It follows redirects where follow
// says so, each checked like a request; never from https to http. On a redirect to another host the
// headers in private are left out. It uses no proxy, unpacks nothing, and keeps no cookies. What it
// waits for is bounded by the context of a request alone.
func (g *Guard) Client(follow bool, private ...string) *http.Client {
	g = cmp.Or(g, &Guard{})
	dial := &net.Dialer{Timeout: 10 * time.Second, Control: g.control, Resolver: g.resolver}
	transport := &http.Transport{
		DialContext:            dial.DialContext,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport: checked{g, transport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			from := via[len(via)-1].URL
			switch {
			case !follow:
				return http.ErrUseLastResponse
			case len(via) > maxRedirects:
				return fmt.Errorf("%w: more than %d redirects", ErrRedirect, maxRedirects)
			case from.Scheme == "https" && r.URL.Scheme != "https":
				return fmt.Errorf("%w: from https to %s", ErrRedirect, r.URL.Scheme)
			}
			if first := via[0].URL; first.Host != r.URL.Host || first.Scheme != r.URL.Scheme {
				for _, h := range private {
					r.Header.Del(h)
				}
			}
			return nil
		},
	}
}

// checked checks every request, also after a redirect.
type checked struct {
	g *Guard
	*http.Transport
}

func (c checked) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := c.g.Check(r.URL); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		c.g.counts.refused()
		return nil, err
	}
	began := time.Now()
	answer, err := c.Transport.RoundTrip(r)
	c.g.counts.done(began, answer, err)
	return answer, err
}

// DialContext connects to HOST:PORT for protocols other than HTTP, under the same list.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	g = cmp.Or(g, &Guard{})
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, ErrURL)
	}
	name, err := canonical(host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%w: port %q", ErrURL, port)
	}
	ok := g.allows(name, uint16(n), false)
	if a, aerr := netip.ParseAddr(name); aerr == nil && !ok {
		ok = !g.named(a) && g.inside(a)
	}
	if !ok {
		return nil, fmt.Errorf("%s port %s: %w", name, port, ErrHost)
	}
	dial := &net.Dialer{Timeout: 10 * time.Second, Control: g.control, Resolver: g.resolver}
	return dial.DialContext(ctx, network, net.JoinHostPort(name, port))
}
