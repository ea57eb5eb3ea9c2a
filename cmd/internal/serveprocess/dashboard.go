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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/ops/action"
	"github.com/exoswarm/exoswarm/internal/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/ops/dashboard"
	"github.com/exoswarm/exoswarm/internal/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/audit"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// UICommand returns exoswarm ui: the dashboard of a cluster.
func UICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ui --nats URL", Short: "Serve the dashboard of a cluster until SIGTERM", Args: cobra.NoArgs,
		Long: `Serve the dashboard of a cluster. It looks at the cluster once a second, however many browsers
watch, and changes nothing: the login of a viewer is enough. It waits for a server that is away.
With --actions and the login of an operator its users may cancel jobs, pause queues and more. Each
action shows what it affects before it is confirmed, and is written to the audit.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveUI(cmd) },
	}
	command.NATSFlags(cmd.Flags(), false)
	dashboardFlags(cmd.Flags())
	command.MetricsFlag(cmd.Flags())
	command.LogFlags(cmd.Flags())
	return cmd
}

// dashboardFlags adds the flags of the listener.
func dashboardFlags(f *pflag.FlagSet) {
	f.String("listen", "127.0.0.1:8228", "HOST:PORT of the dashboard and its API; an address other than loopback "+
		"needs --tls-cert or --behind-proxy")
	f.String("tls-cert", "", "file with the certificate of the dashboard, in PEM")
	f.String("tls-key", "", "file with the key of --tls-cert")
	f.String("login-token-file", "", "file with a lasting token of 20 characters or more, for the login form and for "+
		"programs; empty: one-time addresses on standard output")
	f.Bool("behind-proxy", false, "a reverse proxy on this machine does TLS and the login, and names the user in "+
		"--auth-header")
	f.String("auth-header", "X-Forwarded-User", "header with the name of the user, of --behind-proxy")
	f.StringSlice("host-name", nil, "host names that browsers use for this server, beside its address")
	f.Bool("actions", false, "let users of the dashboard change the cluster; every action is written to the audit")
	f.String("path-prefix", "", "path at which a proxy presents the dashboard, such as /ops")
}

// listener is the dashboard's place: its options and its socket.
type listener struct {
	options dashboard.Options
	actions bool
	out     io.Writer // for the person who started the process
	net.Listener
}

// listen checks the flags and opens the socket, before anything else is started.
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
		if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
			return nil, command.Usage("--tls-cert %s has expired at %s", cert,
				pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	var err error
	if l.Listener, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, command.Usage("--listen %s: %v: choose another port, or :0 for a free one", o.Listen, err)
	}
	o.Listen = l.Addr().String()
	return l, nil
}

// site is a dashboard that does not serve yet. The caller closes it, after serve.
type site struct {
	*dashboard.Server
	watcher *cluster.Watcher
	place   *listener
}

// open starts to observe the cluster that a connection reaches, and checks the options.
func (l *listener) open(ctx context.Context, c *natsq.Conn) (*site, error) {
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
	l.options.Audit = func(ctx context.Context, since time.Time, limit int) (all []audit.Entry, err error) {
		err = c.Audit.List(ctx, since, func(e audit.Entry) bool {
			all = append(all, e)
			return len(all) < limit
		})
		return all, err
	}
	w := cluster.Start(cluster.Options{Conn: c, Log: l.options.Log})
	l.options.Cluster = w
	l.options.Doctor = func(ctx context.Context) ([]doctor.Result, error) {
		f := &doctor.Facts{At: time.Now().UTC(), State: w.State(), Drift: doctor.Drift(ctx, c)}
		f.Error = f.State.Error
		f.Version, _ = command.Version()
		return doctor.Examine(f, "nats", "agents", "devices", "queues", "swarms"), nil
	}
	l.options.Announce = func(url string) { l.tell("the next browser opens " + url) }
	s, err := dashboard.New(l.options)
	if err != nil {
		w.Close()
		if errors.Is(err, dashboard.ErrExposed) || errors.Is(err, dashboard.ErrToken) ||
			errors.Is(err, dashboard.ErrOptions) {
			return nil, command.Usage("--listen: %v", err)
		}
		return nil, err
	}
	return &site{s, w, l}, nil
}

// tell writes a line for the person who started the process. Addresses with a token go there and not
// to the log, which others read.
func (l *listener) tell(line string) { _, _ = fmt.Fprintln(l.out, line) }

// serve serves until ctx ends.
func (s *site) serve(ctx context.Context) error {
	url := s.LoginURL(s.place.Addr().String())
	base, _, _ := strings.Cut(url, "#")
	s.place.options.Log.Info("the dashboard is ready", "url", base, "actions", s.place.actions)
	if s.place.options.Token == "" {
		s.place.tell("open the dashboard: " + url)
	}
	return s.Serve(ctx, s.place.Listener)
}

// Close ends the observation.
func (s *site) Close() {
	s.Server.Close()
	s.watcher.Close()
}

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
	o := natsconn.Options{Name: "exoswarm ui", Logger: log, Bare: !l.actions} // actions need the audit
	o.URL, o.Login = command.NATS(cmd)
	c, err := command.Connect(cmd, o, m)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	go func() {
		select {
		case <-c.Refused():
			stop(errRefused)
		case <-ctx.Done():
		}
	}()
	d, err := l.open(ctx, c)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.serve(ctx)
	if errors.Is(context.Cause(ctx), errRefused) {
		return errors.Join(err, errRefused)
	}
	return err
}

// errRefused ends the dashboard of a login that the server does not accept any more.
var errRefused = fmt.Errorf("the NATS server does not let the dashboard in any more: its credentials expired or were " +
	"revoked (exoswarm auth user add)")
