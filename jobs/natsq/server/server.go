// Package server runs a NATS server with JetStream inside the process: for the all-in-one commands,
// for `exoswarm nats`, and for tests that want the real thing.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// InProcess as Options.Port opens no socket at all: the server is reached through Server.Connection
// only.
const InProcess = -1

// MaxPayload is the largest message, in bytes. Batches stay below 1 MiB, the default of a NATS
// server run elsewhere.
const MaxPayload = 1 << 20

// Options configure a server.
type Options struct {
	// Dir holds the JetStream store. It must exist and be writable. A second server on it is refused.
	Dir string
	// Host is the address to listen on, 127.0.0.1 when empty. Anything but loopback needs a Token
	// or Auth.
	Host string
	// Port to listen on: InProcess for none, 0 for a free one.
	Port int
	// Token that clients must show, as in nats://TOKEN@host:port. Empty for none. With Auth only
	// the other servers of a cluster show it.
	Token string
	// Auth is the file that `exoswarm auth` writes for servers: with it clients log in as its
	// users. Empty for none.
	Auth string
	// Cert and Key are files, in PEM, with the server's certificate; with them clients and the
	// other servers of a cluster speak TLS or are refused. CA is a file with the certificates that
	// sign the certificates of clients and servers. If it is empty, clients need none, and servers
	// of a cluster one that the system trusts.
	Cert, Key, CA string
	// Keys encrypts the streams at rest, with AES-GCM; nil does not. Streams of another key of it,
	// or of none, are encrypted anew with the current one as the server starts. A server without
	// the key of a stream does not start.
	Keys *keyring.Ring
	// Fast trades durability for rate: acknowledged messages of the last 100 ms, and streams made
	// in the last seconds, can be lost in a power cut. Otherwise every acknowledgement is synced to
	// disk first.
	Fast bool
	// Name tells the servers of a cluster apart; "exoswarm" when empty.
	Name string
	// ClusterPort is where the other servers of a cluster connect, on Host; 0 for a server on its
	// own. All of a cluster have the same Token.
	ClusterPort int
	// Routes are host:port of the cluster ports of the other servers.
	Routes []string
	// Monitor is the HOST:PORT of the monitoring endpoints of NATS over HTTP, such as /varz, /jsz and
	// /healthz; empty for none, port 0 for a free one. They need no login and change nothing.
	Monitor string
	// Trace writes the server's own log to stderr.
	Trace bool
	// Logger is told when the disk is nearly full, and when it is not any more; nil for nobody.
	Logger *slog.Logger
}

// Server is a running NATS server.
type Server struct {
	ns    *natsd.Server
	lock  io.Closer // of the folder
	log   *slog.Logger
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
	full  chan struct{}
}

// A client or server that is gone without a word is noticed after this number of pings and one
// more: clients so that their jobs go to others, and servers as soon as another leader may be
// elected. A route that goes nowhere takes a third of all questions that any server may answer with
// it: with the server's own half minute and more, a leader that was cut off for 15 s stopped
// submissions for 16.5.
const (
	clientPing = 2 * time.Second
	routePing  = time.Second
	pings      = 3
)

// invalid is an error of the options.
func invalid(format string, args ...any) error { return jobs.Errorf(jobs.CodeInvalid, format, args...) }

// settle keeps the descriptions of streams durable. A disk that fails shows itself in the server's
// own syncs.
func (s *Server) settle(dir string) {
	tick := time.NewTicker(treeEvery)
	defer tick.Stop()
	for t := (tree{dir: dir}); ; {
		_ = t.sync()
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// Start runs a server and returns when it accepts connections and JetStream is ready, or with an
// error that names the cause. The folder has one server: Start takes its lock, which Close and the
// end of the process give back.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Token == "" && o.Auth == "" && !loopback(o.Host) {
		return nil, invalid("nats server: %s is not a loopback address: listening there needs a token "+
			"(--token-file) or accounts (--auth)", o.Host)
	}
	if !loopback(o.Host) && o.Cert == "" && o.Logger != nil {
		o.Logger.Warn("clients of other machines send tokens and messages in clear: set --tls-cert and --tls-key",
			"host", o.Host)
	}
	if o.Auth != "" && o.ClusterPort > 0 && o.Token == "" {
		return nil, invalid("nats server: the servers of a cluster know each other by a token, with accounts too " +
			"(--token-file)")
	}
	info, err := os.Stat(o.Dir)
	if err != nil {
		return nil, invalid("nats server: data folder: %v", err)
	}
	if !info.IsDir() {
		return nil, invalid("nats server: data folder %s is not a folder", o.Dir)
	}
	// The NATS server itself neither sees another one in its folder nor, for half a minute, that it
	// cannot write there: two servers on one store lose what they have acknowledged.
	lock, err := vfs.Own(o.Dir)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, invalid("nats server: data folder %v: stop that one, or choose another folder", err)
	case err != nil:
		return nil, invalid("nats server: data folder %v", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if n, err := free(o.Dir); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	} else if n < startFree {
		return nil, fmt.Errorf("nats server: the disk of %s has %d bytes left, a server needs %d to start: free "+
			"some or choose another folder", o.Dir, n, startFree)
	}
	if o.Name == "" {
		o.Name = "exoswarm"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	opts := &natsd.Options{Authorization: o.Token}
	if o.Auth != "" {
		if opts, err = o.accounts(); err != nil {
			return nil, fmt.Errorf("nats server: %w", err)
		}
	}
	opts.ServerName, opts.Host, opts.Port, opts.DontListen = o.Name, o.Host, o.Port, o.Port == InProcess
	opts.JetStream, opts.StoreDir, opts.SyncAlways = true, o.Dir, !o.Fast
	// The whole disk: a run is bounded by the space that there is, not by a share of the memory or
	// disk guessed at start.
	opts.JetStreamMaxStore, opts.JetStreamMaxMemory, opts.MaxPayload = 1<<50, 1<<30, MaxPayload
	opts.PingInterval, opts.MaxPingsOut = clientPing, pings
	opts.NoSigs, opts.NoLog = true, !o.Trace
	if err := o.encrypt(opts); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if o.ClusterPort > 0 {
		opts.Cluster = natsd.ClusterOpts{
			Name: "exoswarm", Host: o.Host, Port: o.ClusterPort, Username: "exoswarm", Password: o.Token,
			PingInterval: routePing, MaxPingsOut: pings,
		}
		for _, r := range o.Routes {
			if _, _, err := net.SplitHostPort(r); err != nil {
				return nil, invalid("nats server: route %q: write HOST:PORT: %v", r, err)
			}
			opts.Routes = append(opts.Routes, &url.URL{
				Scheme: "nats-route", Host: r,
				User: url.UserPassword("exoswarm", o.Token),
			})
		}
	} else if len(o.Routes) > 0 {
		return nil, invalid("nats server: routes without a cluster port: set both (--cluster-port)")
	}
	if err := o.secure(opts); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if o.Port == 0 {
		opts.Port = natsd.RANDOM_PORT
	}
	if o.Fast {
		opts.SyncInterval = fastSync
	}
	if err := o.monitor(opts); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if o.Port > 0 {
		// The server reports a busy port only to its own log, so check first.
		l, err := net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
		if err != nil {
			return nil, invalid("nats server: port %d: %v: choose another port, or 0 for a free one", o.Port, err)
		}
		l.Close()
	}
	ns, err := natsd.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if o.Trace {
		ns.ConfigureLogger()
	}
	go ns.Start()
	s := &Server{ns: ns, lock: lock, log: o.Logger, stop: make(chan struct{}), full: make(chan struct{})}
	for deadline := time.Now().Add(30 * time.Second); ; {
		if ns.ReadyForConnections(50*time.Millisecond) && ns.JetStreamEnabled() {
			if err := o.encrypted(); err != nil {
				s.Close()
				return nil, fmt.Errorf("nats server: %w", err)
			}
			s.ended.Add(1)
			go func() { defer s.ended.Done(); s.watch(o.Dir, o.ClusterPort == 0 && o.Port != InProcess) }()
			if o.Fast {
				s.ended.Add(1)
				go func() { defer s.ended.Done(); s.settle(o.Dir) }()
			}
			return s, nil
		}
		if err := ctx.Err(); err != nil {
			s.Close()
			return nil, fmt.Errorf("nats server: start: %w", err)
		}
		if !ns.Running() && ns.ReadyForConnections(0) || time.Now().After(deadline) {
			s.Close()
			return nil, errors.New("nats server: JetStream did not start in " + o.Dir + ": is another server using " +
				"the folder, or the disk full?")
		}
	}
}

// monitor sets the address of the monitoring endpoints.
func (o Options) monitor(opts *natsd.Options) error {
	if o.Monitor == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(o.Monitor)
	if err != nil {
		return invalid("monitoring address %q: write HOST:PORT: %v", o.Monitor, err)
	}
	l, err := net.Listen("tcp", o.Monitor) // the server reports a busy port only to its own log
	if err != nil {
		return invalid("monitoring address %s: %v: choose another port, or :0 for a free one", o.Monitor, err)
	}
	defer l.Close()
	if opts.HTTPHost = host; port == "0" {
		opts.HTTPPort = natsd.RANDOM_PORT
		return nil
	}
	opts.HTTPPort = l.Addr().(*net.TCPAddr).Port
	return nil
}

// MonitorURL returns the address of the monitoring endpoints; empty without them.
func (s *Server) MonitorURL() string {
	at := s.ns.MonitorAddr()
	if at == nil {
		return ""
	}
	return "http://" + at.String()
}

// loopback reports whether only this machine reaches an address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// accounts makes the options of a server whose clients are the users of accounts. Accounts that
// were pushed to it later are kept next to the store and take precedence over accounts of the file.
func (o Options) accounts() (*natsd.Options, error) {
	opts, err := natsd.ProcessConfigFile(o.Auth)
	if err != nil {
		return nil, invalid("accounts: %v: make the file with exoswarm auth init", err)
	}
	if len(opts.TrustedOperators) == 0 || opts.SystemAccount == "" {
		return nil, invalid("accounts: %s names no operator or no system account: use the auth.conf that exoswarm "+
			"auth init has made", o.Auth)
	}
	resolver, err := natsd.NewDirAccResolver(filepath.Join(o.Dir, "accounts"), 0, resolverSync, natsd.NoDelete)
	if err != nil {
		return nil, fmt.Errorf("accounts: %w", err)
	}
	opts.AccountResolver = resolver
	return opts, nil
}

// resolverSync is how often servers of a cluster compare their accounts, for a server that was away
// while accounts changed.
const resolverSync = time.Minute

// secure turns on TLS where there is a certificate.
func (o Options) secure(opts *natsd.Options) error {
	if (o.Cert == "") != (o.Key == "") {
		return invalid("a certificate and its key come together (--tls-cert, --tls-key)")
	}
	if o.Cert == "" {
		if o.CA != "" {
			return invalid("a CA without a certificate: set all three (--tls-cert, --tls-key, --tls-ca)")
		}
		return nil
	}
	for _, file := range []string{o.Cert, o.Key, o.CA} { // the server's own errors do not say which file
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return invalid("TLS: %v", err)
		}
	}
	conf := func() (*tls.Config, error) {
		c, err := natsd.GenTLSConfig(&natsd.TLSConfigOpts{
			CertFile: o.Cert, KeyFile: o.Key, CaFile: o.CA,
			Verify: o.CA != "", Ciphers: nil,
		})
		if err != nil {
			return nil, invalid("TLS with %s: %v", o.Cert, err)
		}
		c.MinVersion = tls.VersionTLS12
		return c, nil
	}
	var err error
	if opts.TLSConfig, err = conf(); err != nil {
		return err
	}
	opts.TLS, opts.TLSVerify, opts.TLSTimeout = true, o.CA != "", 5
	if o.ClusterPort > 0 {
		if opts.Cluster.TLSConfig, err = conf(); err != nil {
			return err
		}
		opts.Cluster.TLSTimeout = 5
		// A server of the cluster is a client of the other servers too: it checks them by the same
		// CA.
		opts.Cluster.TLSConfig.RootCAs = opts.Cluster.TLSConfig.ClientCAs
	}
	return nil
}

// URL is where clients connect; empty for an in-process server.
func (s *Server) URL() string {
	if s.ns.Addr() == nil {
		return ""
	}
	return s.ns.ClientURL()
}

// Clients returns the number of connected clients. It takes the lock of the server and waits for
// nothing else.
func (s *Server) Clients() int { return s.ns.NumClients() }

// InProcessConn makes a connection that never leaves the process; nats.InProcessServer takes the
// Server for it.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Close stops the server and waits until its store is on disk. A second call does nothing.
func (s *Server) Close() {
	s.once.Do(func() { close(s.stop) })
	s.ended.Wait()
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	_ = s.lock.Close() // the last: another server may start from here on
}
