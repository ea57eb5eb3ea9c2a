// Package dashboard is an HTTP server that shows a cluster: a JSON API below /api/v1, a stream of
// events and the pages that read both.
//
// One cluster.Watcher serves all browsers. A state is encoded and compressed once, and every stream
// sends the same bytes. Questions about one job or swarm are asked once for all browsers.
//
// The API is a table of routes (routes.go) over package httpapi. It only reads, unless
// Options.Actions is set (actions.go). The Host check, the origin check and the login cover every
// route.
package dashboard

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// Programs does what programs ask for: it makes and feeds swarms, hands out jobs, or serves models.
// *programs.Server and *openai.Server implement it. Its methods are safe for concurrent use.
type Programs interface {
	// Routes returns the routes, whose login the dashboard checks.
	Routes() []httpapi.Route
}

// Options configure a Server. Cluster and Listen are required. New reads them once; the caller does
// not change what they refer to afterwards.
//
// Three kinds of installation are safe, and New refuses all others: a loopback address, TLS, and a
// reverse proxy that does the login.
type Options struct {
	Cluster Cluster
	// Doctor runs the checks of the cluster; nil: the checks that need the newest state alone.
	Doctor func(ctx context.Context) ([]doctor.Result, error)
	// Faults knows since when the checks fail; nil: since a browser looks.
	Faults *doctor.Faults
	// Past replays logs; nil: the dashboard shows entries and moments of no swarm.
	Past Past
	// Compute folds an expression over the agents of a swarm, by its id. nil: no request may.
	Compute func(ctx context.Context, swarm string, r swarmclient.ComputeRequest) (*swarmclient.ComputeAnswer, error)
	// Actions does what users ask for; nil: the server only reads, and the routes of actions do not
	// exist.
	Actions Actions
	// Audit lists the newest actions of operators, at most limit of those since a time; nil: none.
	Audit func(ctx context.Context, since time.Time, limit int) ([]control.AuditEntry, error)
	// Programs serves programs; nil: their routes do not exist.
	Programs Programs
	// Models serves language models below /v1; nil: their routes do not exist. Programs have the
	// login of Programs.
	Models Programs
	// ProgramToken is a lasting secret of at least 20 characters that admits programs to their
	// routes alone; empty: they use Token.
	ProgramToken string
	// Log receives failures of the cluster and refused logins; nil: none.
	Log *slog.Logger
	// Version is the version of the program that the page shows.
	Version string

	// Listen is the HOST:PORT of the listener. It decides whether the server may run without TLS.
	Listen string
	// Hosts are the host names, without port, that browsers may use. Loopback names are always
	// allowed on a loopback address, and every literal IP address on any other address.
	Hosts []string
	// Prefix is the path at which a proxy that does not strip it presents the server, such as
	// "/ops"; empty or "/": none.
	Prefix string
	// TLS is the configuration of the listener; nil: plain HTTP. A verified client certificate is a
	// login.
	TLS *tls.Config

	// Token is a lasting secret of at least 20 characters, for the login form and for programs
	// ("Authorization: Bearer TOKEN"). Empty: the server makes one-time tokens, see LoginURL.
	Token string
	// Announce receives the next login address after a browser used the one before; nil: nobody
	// does. It must not block.
	Announce func(url string)
	// BehindProxy allows an address that is not loopback without TLS. A reverse proxy does the
	// login and names the user in AuthHeader, which is then required.
	BehindProxy bool
	// AuthHeader is the header with the user's name, such as "X-Forwarded-User".
	AuthHeader string
	// ProxySecret is at least 20 characters that the proxy sends in the header ProxyHeader;
	// required with BehindProxy. Every process of the proxy's machine has the proxy's address, so
	// the address alone proves nothing.
	ProxySecret string
	// Proxies are the addresses from which AuthHeader counts; empty: loopback.
	Proxies []netip.Prefix
}

// Server serves the dashboard. It is an http.Handler, safe for concurrent use. The caller calls
// Close when no more requests arrive.
type Server struct {
	o           Options
	log         *slog.Logger
	handler     http.Handler
	logins      *logins
	tickets     *tickets
	answers     *answers
	events      *hub
	description []byte // OpenAPI
	hosts       map[string]bool
	moments     httpapi.Gate // of requests that wait for a replay or run one
	local       bool
	started     time.Time
}

// New returns a server. It fails with ErrExposed, ErrToken or ErrOptions when the options are not
// safe.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Faults == nil {
		o.Faults = &doctor.Faults{}
	}
	host, port, err := net.SplitHostPort(o.Listen)
	switch {
	case o.Cluster == nil:
		return nil, fmt.Errorf("%w: Cluster is nil", ErrOptions)
	case err != nil:
		return nil, fmt.Errorf("%w: listen %q: use HOST:PORT, such as 127.0.0.1:8228", ErrOptions, o.Listen)
	case o.BehindProxy && o.AuthHeader == "":
		return nil, fmt.Errorf("%w: a server behind a proxy needs the name of the header with the user", ErrOptions)
	case o.BehindProxy && len(o.ProxySecret) < minToken:
		return nil, fmt.Errorf("%w: a server behind a proxy needs a secret of at least %d characters that the proxy "+
			"sends as %s: else every process on its machine can name any user", ErrToken, minToken, ProxyHeader)
	case o.AuthHeader != "" && !o.BehindProxy:
		return nil, fmt.Errorf("%w: a header with the user counts behind a proxy only", ErrOptions)
	case o.Token != "" && len(o.Token) < minToken, o.ProgramToken != "" && len(o.ProgramToken) < minToken:
		return nil, fmt.Errorf("%w: use at least %d characters", ErrToken, minToken)
	}
	local := httpapi.Loopback(host)
	if !local && o.TLS == nil && !o.BehindProxy {
		return nil, fmt.Errorf("%w: %s: others could read the cluster and the login on the way; listen on 127.0.0.1, "+
			"use TLS, or run it behind a proxy with a header that names the user", ErrExposed, o.Listen)
	}
	if len(o.Proxies) == 0 {
		o.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	o.Prefix = strings.TrimRight(o.Prefix, "/")
	if o.Prefix != "" && !strings.HasPrefix(o.Prefix, "/") {
		o.Prefix = "/" + o.Prefix
	}
	s := &Server{
		o: o, log: o.Log, local: local, started: time.Now(), hosts: map[string]bool{},
		moments: httpapi.NewGate(maxMoments), tickets: newTickets(),
		logins: newLogins(port, o.Token), answers: newAnswers(),
		events:      newHub(o.Cluster, o.Faults, o.Log, time.Second),
		description: OpenAPI(),
	}
	for _, h := range o.Hosts {
		s.hosts[strings.ToLower(h)] = true
	}
	s.handler = s.guard(s.routes())
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// LoginURL returns the address that logs a browser in. The one-time token, or the lasting token, is
// in the fragment, which browsers send to nobody. addr is the HOST:PORT of the listener; empty:
// Options.Listen.
func (s *Server) LoginURL(addr string) string {
	if addr == "" {
		addr = s.o.Listen
	}
	scheme := "http"
	if s.o.TLS != nil {
		scheme = "https"
	}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			addr = net.JoinHostPort("localhost", port)
		}
	}
	return scheme + "://" + addr + s.o.Prefix + "/#t=" + url.PathEscape(s.logins.token())
}

// Serve accepts connections of ln until ctx ends, and then closes ln and the server. It returns nil
// when ctx ended. Slow requests are cut off after 15 s and slow answers after 30 s. Streams have a
// deadline for each write.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.logins.listensAt(ln.Addr().String())
	h := httpapi.Start(ln, httpapi.Config{
		Handler: s, Serve: httpapi.TLS(s.o.TLS), ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Read: 15 * time.Second, Write: 30 * time.Second, Idle: 2 * time.Minute, MaxHeader: 32 << 10,
	})
	select {
	case <-ctx.Done():
	case <-h.Done():
	}
	s.Close() // ends the streams, which the drain would wait for
	h.CloseWithin(2 * time.Second)
	if err := h.Err(); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

// Close ends all streams and questions to the cluster and waits for their goroutines. A second call
// does nothing.
func (s *Server) Close() {
	s.events.close()
	s.answers.close()
}
