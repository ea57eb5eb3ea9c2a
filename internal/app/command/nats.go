package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// The flags of a connection, the variables of the nats tool that stand behind them, and what they
// are for. Secrets have no flag: a command line is seen by everybody on the machine.
var natsFlags = []struct{ name, variable, usage string }{
	{"nats", "NATS_URL", "URL of the NATS server; empty: exoswarm serve in this folder, or 127.0.0.1:4222"},
	{"nats-context", "NATS_CONTEXT", "context of the nats tool that says where the server is and how to log in: a " +
		"name or the path of its file"},
	{"nats-creds", "NATS_CREDS", "file with the credentials (JWT and seed) to log in with"},
	{"nats-nkey", "NATS_NKEY", "file with the seed of an nkey to log in with"},
	{"nats-ca", "NATS_CA", "file with the certificates, in PEM, that the server's must be signed by; the system's " +
		"when empty"},
	{"nats-cert", "NATS_CERT", "file with our certificate, for a server that asks for one"},
	{"nats-key", "NATS_KEY", "file with the key of --nats-cert"},
}

// NATSFlags adds the flags of a connection to a NATS server. Variables of the nats tool (NATS_URL,
// NATS_CREDS and so on) stand behind them, and NATS_USER, NATS_PASSWORD and NATS_TOKEN besides.
// NATS_URL is left out for a command that embeds a server unless it is given one.
func NATSFlags(f *pflag.FlagSet, embeds bool) {
	for _, n := range natsFlags {
		value := os.Getenv(n.variable)
		if n.name == "nats" && embeds {
			value, n.usage = "", "URL of the NATS server; empty runs everything in this process"
		}
		if n.name == "nats-context" && embeds {
			value = ""
		}
		f.String(n.name, value, n.usage)
		GroupFlags(f, Connection, n.name)
		if n.name == "nats" && value != "" { // help shows the default, and a URL may hold a password
			f.Lookup(n.name).DefValue = natsconn.Redact(value)
		}
	}
}

// NATS reads the flags of NATSFlags. Without URL and context it is the server of exoswarm serve in
// this folder, else the server of this machine.
func NATS(cmd *cobra.Command) (url string, login natsconn.Login) {
	get := func(name string) string { v, _ := cmd.Flags().GetString(name); return v }
	login = natsconn.Login{
		Context: get("nats-context"), Credentials: get("nats-creds"), NKey: get("nats-nkey"), CA: get("nats-ca"),
		Cert: get("nats-cert"), Key: get("nats-key"),
		User: os.Getenv("NATS_USER"), Password: os.Getenv("NATS_PASSWORD"), Token: os.Getenv("NATS_TOKEN"),
	}
	if url = get("nats"); url == "" && login.Context == "" {
		url = servedHere()
	}
	return url, login
}

// Addresses are where the parts of exoswarm serve listen. They are a file in its data folder while
// it runs, so that commands find it whatever its ports are.
type Addresses struct {
	NATS      string `json:"nats"`
	Dashboard string `json:"dashboard"`
}

const (
	addressFile = "addresses.json"
	// ServeFolder is the default data folder of exoswarm serve.
	ServeFolder = "exoswarm-data"
	// DataMarker is the file that each data folder of exoswarm serve has.
	DataMarker = "exoswarm.json"
	// ServedSnapshots is the place of the snapshots and models of exoswarm serve below its data folder.
	ServedSnapshots = "gpu/snapshots"
	// ProgramToken is the file with the token of programs in the data folder of exoswarm serve.
	ProgramToken = "program.token"
)

// Write writes the addresses into a data folder. The caller calls remove at the end of the process.
func (a Addresses) Write(dir string) (remove func(), err error) {
	data, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", dir, err)
	}
	path := filepath.Join(dir, addressFile)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", dir, err)
	}
	return func() { _ = os.Remove(path) }, nil
}

// NamesServer reports whether the flags of NATSFlags name a server, or exoswarm serve runs in this
// folder.
func NamesServer(cmd *cobra.Command) bool {
	url, _ := cmd.Flags().GetString("nats")
	context, _ := cmd.Flags().GetString("nats-context")
	return url != "" || context != "" || ServedFolder() != ""
}

// ServedFolder returns the data folder of exoswarm serve that servedHere finds; empty: there is none.
func ServedFolder() string {
	dir, _ := servedBy()
	return dir
}

// servedHere returns the URL of the NATS server of exoswarm serve whose data folder is
// EXOSWARM_DATA_DIR, ./exoswarm-data or the present folder. Without one it returns the URL with the
// default port. A process that was killed leaves its file, so the address must answer.
func servedHere() string {
	if _, a := servedBy(); a.NATS != "" {
		return a.NATS
	}
	return "nats://127.0.0.1:4222"
}

// ServedPages returns the address of the dashboard of exoswarm serve that servedHere finds, and its
// file with the token of programs; empty: there is none.
func ServedPages() (url, tokenFile string) {
	dir, a := servedBy()
	return a.Dashboard, filepath.Join(dir, ProgramToken)
}

// DataFolder returns the data folder of exoswarm serve that is, or would be, started here without
// flags: EXOSWARM_DATA_DIR, the present folder if it is one, or ./exoswarm-data.
func DataFolder() string {
	if dir := os.Getenv("EXOSWARM_DATA_DIR"); dir != "" {
		return dir
	}
	if _, err := os.Stat(ServeFolder); err != nil {
		if _, err := os.Stat(DataMarker); err == nil {
			return "."
		}
	}
	return ServeFolder
}

func servedBy() (dir string, a Addresses) {
	for _, dir := range []string{os.Getenv("EXOSWARM_DATA_DIR"), ServeFolder, "."} {
		var a Addresses
		data, err := os.ReadFile(filepath.Join(dir, addressFile))
		if dir == "" || err != nil || json.Unmarshal(data, &a) != nil {
			continue
		}
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(a.NATS, "nats://"), time.Second)
		if err != nil {
			continue
		}
		_ = c.Close()
		return dir, a
	}
	return "", Addresses{}
}

// connectEvery is how often an agent that starts before its server tries again.
const connectEvery = time.Second

// Connect connects an agent. A server that does not answer, or has no streams that the agent may
// not make, is waited for until the command's context ends: the log has one line at the start and
// one at the end, and /readyz and the service say so meanwhile. Afterwards /readyz asks for a
// working connection, and the metrics show it. service may be nil.
func Connect(cmd *cobra.Command, o natsconn.Options, m *Metrics, service *Service) (*natsq.Conn, error) {
	log := o.Logger
	m.Require("nats", func(context.Context) error { return errors.New("not connected yet") })
	began := time.Time{}
	for {
		conn, err := natsq.Connect(cmd.Context(), o)
		if err == nil {
			if !began.IsZero() {
				log.Info("the NATS server answers", "after", time.Since(began).Round(time.Millisecond))
			}
			m.Require("nats", conn.Health)
			if err := m.Register(conn.Collector()); err != nil {
				conn.Close()
				return nil, fmt.Errorf("metrics of the connection to NATS: %w", err)
			}
			return conn, nil
		}
		// Agents may start before exoswarm init, as they may before the server.
		if !errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, natsconn.ErrNoStreams) {
			return nil, err
		}
		if cmd.Context().Err() != nil {
			return nil, context.Cause(cmd.Context())
		}
		if began.IsZero() {
			began = time.Now()
			log.Warn("waiting for the NATS server", "error", err)
			m.Require("nats", func(context.Context) error { return err })
		}
		service.Waiting(err.Error())
		select {
		case <-time.After(connectEvery):
		case <-cmd.Context().Done():
			return nil, context.Cause(cmd.Context())
		}
	}
}

// Link is a connection that may lose its server for good, as a connection of jobs/natsq may.
type Link interface {
	// Lost is closed when the server has not answered for the time that the connection allows.
	Lost() <-chan struct{}
	// LostError returns the reason of the loss in place of err, and err when the server is not
	// lost.
	LostError(err error) error
	Close()
}

// WithLink returns a context that ends with ctx and with the loss of the server of a connection.
// The caller calls the function when the work is done.
func WithLink(ctx context.Context, l Link) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			cancel(l.LostError(jobs.ErrUnavailable))
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(done); cancel(nil) })
}
