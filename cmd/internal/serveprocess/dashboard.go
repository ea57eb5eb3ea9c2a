package serveprocess

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/dashboard"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// UICommand returns exoswarm ui: the dashboard of a cluster that runs elsewhere. It creates nothing
// in the cluster and needs the rights of a viewer only.
func UICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ui --nats URL", Short: "Serve the dashboard of a cluster until SIGTERM",
		Long: `Serve the dashboard of a cluster. It looks at the cluster once a second, however many browsers
watch, and changes nothing: the login of a viewer is enough. It waits for a server that is away.
With --snapshots it shows the past of swarms whose logs were trimmed, and of others sooner.
With --actions and the login of an operator its users may cancel jobs, pause queues and more. Each
action shows what it affects before it is confirmed, and is written to the audit.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveUI(cmd) },
	}
	command.NATSFlags(cmd.Flags(), false)
	dashboardFlags(cmd.Flags())
	cmd.Flags().String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as for "+
		"gpuagent --snapshots; empty: replays begin with the first entry of a log")
	cmd.Flags().String("key-file", "", "file with the keys of encrypted snapshots, as for gpuagent --key-file")
	command.MetricsFlag(cmd.Flags())
	command.LogFlags(cmd.Flags())
	return cmd
}

// dashboardFlags adds the flags that listen reads: the address, TLS, the login and the proxy. Both
// exoswarm ui and exoswarm serve have them.
func dashboardFlags(f *pflag.FlagSet) {
	f.String("listen", "127.0.0.1:8228", "HOST:PORT of the dashboard and its API; an address other than loopback "+
		"needs --tls-cert or --behind-proxy")
	f.String("tls-cert", "", "file with the certificate of the dashboard, in PEM")
	f.String("tls-key", "", "file with the key of --tls-cert")
	f.String("login-token-file", "", "file with a lasting token of 20 characters or more, for the login form and for "+
		"programs; empty: one-time addresses on standard output")
	f.Bool("behind-proxy", false, "a reverse proxy on this machine does TLS and the login, and names the user in "+
		"--auth-header")
	f.String("proxy-secret-file", "", "file with a secret of 20 characters or more, which the proxy of --behind-proxy "+
		"sends as "+dashboard.ProxyHeader+"; required with it")
	f.String("auth-header", "X-Forwarded-User", "header with the name of the user, of --behind-proxy")
	f.StringSlice("host-name", nil, "host names that browsers use for this server, beside its address")
	f.Bool("actions", false, "let users of the dashboard change the cluster; every action is written to the audit")
	f.String("path-prefix", "", "path at which a proxy presents the dashboard, such as /ops")
}

// listener is the open socket of the dashboard with its options. Its owner closes it.
type listener struct {
	options dashboard.Options
	actions bool
	out     io.Writer // for the person who started the process
	net.Listener
}

// listen checks the flags and opens the socket. It runs before anything else is started, so that a
// wrong flag or a port in use leaves no trace in a cluster or a data folder. Its errors are errors
// of usage. From here on options.Listen is the address that was opened, which tells the port for
// :0.
func listen(cmd *cobra.Command, log *slog.Logger) (*listener, error) {
	f := cmd.Flags()
	l := &listener{out: cmd.OutOrStdout()}
	l.actions, _ = f.GetBool("actions")
	o := &l.options
	o.Log = log
	o.Listen, _ = f.GetString("listen")
	o.Hosts, _ = f.GetStringSlice("host-name")
	o.Prefix, _ = f.GetString("path-prefix")
	o.Version, _ = command.Version()
	if o.BehindProxy, _ = f.GetBool("behind-proxy"); o.BehindProxy {
		o.AuthHeader, _ = f.GetString("auth-header")
		file, _ := f.GetString("proxy-secret-file")
		if file == "" {
			return nil, command.Usage("--behind-proxy needs --proxy-secret-file FILE, and the proxy sends its content "+
				"as %s: else every process on this machine can name any user", dashboard.ProxyHeader)
		}
		secret, err := os.ReadFile(file)
		if err != nil {
			return nil, command.Usage("--proxy-secret-file: %v", err)
		}
		o.ProxySecret = strings.TrimSpace(string(secret))
	}
	if file, _ := f.GetString("login-token-file"); file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, command.Usage("--login-token-file: %v", err)
		}
		o.Token = strings.TrimSpace(string(token))
	}
	cert, _ := f.GetString("tls-cert")
	key, _ := f.GetString("tls-key")
	if (cert == "") != (key == "") {
		return nil, command.Usage("--tls-cert and --tls-key: give both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, command.Usage("--tls-cert: %v", err)
		}
		// Browsers refuse an expired certificate with a message that few people understand.
		if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
			return nil, command.Usage("--tls-cert %s has expired at %s", cert,
				pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	var err error
	if l.Listener, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, command.Usage("--listen %s: %v: write HOST:PORT with another port, or :0 for a free one",
			o.Listen, err)
	}
	o.Listen = l.Addr().String()
	return l, nil
}

// url returns the address of the dashboard for browsers of this machine.
func (l *listener) url() string {
	scheme := "http"
	if l.options.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + l.options.Listen + l.options.Prefix
}

// site is a dashboard with the watcher of its cluster. It does not serve before serve. The caller
// calls Close after serve has returned. The connection of the watcher stays the caller's.
type site struct {
	*dashboard.Server
	watcher *cluster.Watcher
	guide   *travel.Guide
	place   *listener
	// faults follow the cluster whether or not a browser looks, until end is called and ended is over.
	faults *doctor.Faults
	end    context.CancelFunc
	ended  chan struct{}
}

// openSnapshots opens the place of snapshots, with the keys of a file for encrypted ones; nil for
// an empty place. A place that cannot be opened, or a wrong file, is an error of usage.
func openSnapshots(ctx context.Context, place, keyFile string) (bucket.Bucket, error) {
	if place == "" {
		return nil, nil
	}
	var keys *keyring.Ring
	if keyFile != "" {
		var err error
		if keys, err = keyring.Read(keyFile); err != nil {
			return nil, command.Usage("--key-file: %v", err)
		}
	}
	b, err := bucket.Open(ctx, place)
	if err != nil {
		return nil, command.Usage("--snapshots: %v", err)
	}
	return bucket.Seal(b, keys), nil
}

// open starts to observe the cluster that c reaches, and makes the dashboard. c must stay open
// until the site is closed. Options that the dashboard refuses, such as an exposed address without
// TLS, are errors of usage; the watcher is closed then. snapshots stays the caller's; nil: there
// are none. The metrics of the cluster go to m. With --actions it checks that the login of c
// belongs to an operator.
func (l *listener) open(
	ctx context.Context, c *natsq.Conn, m *command.Metrics, snapshots bucket.Bucket,
) (*site, error) {
	if l.actions {
		o, err := action.New(action.Options{Conn: c})
		if err == nil {
			err = o.Check(ctx, command.Person(c.User(), "dashboard"))
		}
		if err != nil {
			return nil, fmt.Errorf("--actions: %w", err)
		}
		l.options.Actions = o
	}
	l.options.Audit = func(ctx context.Context, since time.Time, limit int) (all []control.AuditEntry, err error) {
		err = c.Audit.List(ctx, since, func(e control.AuditEntry) bool {
			all = append(all, e)
			return len(all) < limit
		})
		return all, err
	}
	log := l.options.Log
	past := travel.Options{Conn: c, Log: log}
	if snapshots != nil {
		past.Snapshots, past.Models = snapshots, bucket.FilesOf(snapshots, "") // without copies it has nothing to close
	}
	guide, err := travel.New(past)
	if err != nil {
		return nil, err
	}
	folds, err := swarmclient.NewComputer(c.Swarms)
	if err != nil {
		return nil, errors.Join(err, guide.Close())
	}
	w := cluster.Start(cluster.Options{Conn: c, Log: log})
	if err := m.Register(newExporter(w)); err != nil {
		w.Close()
		return nil, errors.Join(fmt.Errorf("metrics of the cluster: %w", err), guide.Close())
	}
	l.options.Cluster, l.options.Past, l.options.Compute = dashboard.Observe(w, c), guide, folds.Compute
	// The doctor uses the looks of the watcher and does not read this machine: a browser is on
	// another one.
	l.options.Doctor = func(ctx context.Context) ([]doctor.Result, error) {
		f := &doctor.Facts{At: time.Now().UTC(), State: w.State(), Drift: doctor.Drift(ctx, c)}
		f.Error = f.State.Error
		f.Version, _ = command.Version()
		return doctor.Examine(f, "nats", "agents", "devices", "queues", "swarms", "detectors"), nil
	}
	l.options.Faults = &doctor.Faults{}
	l.options.Announce = func(url string) { l.tell("the next browser opens " + url) }
	s, err := dashboard.New(l.options)
	if err != nil {
		w.Close()
		err = errors.Join(err, guide.Close())
		if errors.Is(err, dashboard.ErrExposed) || errors.Is(err, dashboard.ErrToken) ||
			errors.Is(err, dashboard.ErrOptions) {
			return nil, command.Usage("--listen: %v", err)
		}
		return nil, err
	}
	follow, end := context.WithCancel(context.WithoutCancel(ctx))
	one := &site{
		Server: s, watcher: w, guide: guide, place: l, faults: l.options.Faults, end: end, ended: make(chan struct{}),
	}
	go one.follow(follow)
	return one, nil
}

// faultPatience is how long a fault lasts before the log tells it: agents start one after the
// other.
const faultPatience = 5 * time.Second

// follow tells incidents and faults as they begin and end, until ctx ends.
func (s *site) follow(ctx context.Context) {
	defer close(s.ended)
	log, began := s.place.options.Log, time.Now()
	told, faults := map[string]bool{}, map[string]string{}
	for state := (&cluster.State{}); ; {
		var err error
		if state, err = s.watcher.Wait(ctx, state.Frame); err != nil {
			return
		}
		now := map[string]string{}
		for _, f := range s.faults.Of(&doctor.Facts{At: state.At, State: state, Error: state.Error}) {
			if f.Level != doctor.Failed || state.At.Sub(f.Since) < faultPatience {
				continue
			}
			if now[f.ID] = f.Summary; faults[f.ID] == "" {
				log.Warn(f.Summary, "check", f.ID, "details", f.Details, "cure", f.Cure)
			}
		}
		for id, summary := range faults {
			if now[id] == "" {
				log.Info("this is over: "+summary, "check", id)
			}
		}
		faults = now
		still := map[string]bool{}
		for _, in := range slices.Backward(state.Incidents) {
			key := in.Swarm + in.Begin + in.Entity
			if still[key] = true; !told[key] && in.Began.After(began) {
				log.Info("incident", "detector", in.Watch, "entity", in.Entity, "since", in.Begin, "why", in.Why())
			}
		}
		told = still
	}
}

// tell writes a line for the person who started the process. Addresses with a token go there and
// not to the log, which others read.
func (l *listener) tell(line string) { _, _ = fmt.Fprintln(l.out, line) }

// serve serves until ctx ends. It prints an address with which a browser logs in once.
func (s *site) serve(ctx context.Context) error {
	url := s.LoginURL(s.place.Addr().String())
	base, _, _ := strings.Cut(url, "#")
	s.place.options.Log.Info("the dashboard is ready", "url", base, "actions", s.place.actions)
	if s.place.options.Token == "" {
		s.place.tell("open the dashboard: " + url)
	}
	return s.Serve(ctx, s.place.Listener)
}

// Close closes the dashboard first, because its requests read from the watcher.
// The replays end last.
func (s *site) Close() {
	s.end()
	<-s.ended
	s.Server.Close()
	s.watcher.Close()
	if err := s.guide.Close(); err != nil {
		s.place.options.Log.Warn("ending the replays", "error", err)
	}
}

// serveUI is the life of exoswarm ui: it opens the socket, connects, serves until a signal or until
// the server refuses the login, and closes in the reverse order. Bare means that the connection
// creates none of the streams.
func serveUI(cmd *cobra.Command) error {
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	l, err := listen(cmd, log)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := command.NewMetrics(cmd, log)
	if err != nil {
		return err
	}
	defer m.Close()
	// command.Connect waits for a server that does not answer, until the signal. Actions need the
	// audit.
	o := natsconn.Options{Name: "exoswarm ui", Logger: log, Bare: !l.actions}
	o.URL, o.Login = command.NATS(cmd)
	service := command.NewService(log)
	defer service.Close()
	c, err := command.Connect(cmd, o, m, service)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	// The goroutine ends with ctx, which ends with this function at the latest.
	go func() {
		select {
		case <-c.Refused():
			stop(errRefused)
		case <-ctx.Done():
		}
	}()
	place, _ := cmd.Flags().GetString("snapshots")
	keyFile, _ := cmd.Flags().GetString("key-file")
	snapshots, err := openSnapshots(ctx, place, keyFile)
	if err != nil {
		return err
	}
	if snapshots != nil {
		defer snapshots.Close()
	}
	d, err := l.open(ctx, c, m, snapshots)
	if err != nil {
		return err
	}
	defer d.Close()
	service.Ready(func() { d.watcher.State() })
	err = d.serve(ctx)
	service.Stopping(context.Cause(ctx))
	if errors.Is(context.Cause(ctx), errRefused) {
		return errors.Join(err, errRefused)
	}
	return err
}

// errRefused ends the dashboard of a login that the server does not accept any more. Its text says
// what to do, because it is the last line that the user sees.
var errRefused = fmt.Errorf("the NATS server does not let the dashboard in any more: its credentials expired or were " +
	"revoked (exoswarm auth user add)")
