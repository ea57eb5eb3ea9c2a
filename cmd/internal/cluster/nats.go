package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// NATS returns exoswarm nats: a NATS server with the settings that the durability of runs
// needs. Every flag has an environment variable. A server without a cluster keeps the only copy of
// its data. It listens on loopback unless --host says otherwise: whoever reaches a server without a
// login reads and writes all streams, so another address needs --token-file or --auth.
func NATS() *cobra.Command {
	var o server.Options
	cmd := cli.Verb{
		Use: "nats --port PORT --data-dir DIR", Short: "Run a NATS server with JetStream until SIGTERM",
		Do: cli.Here(func(cmd *cobra.Command, _ []string) error { return serveNATS(cmd, o) }),
	}.Command()
	f := cmd.Flags()
	// Where it listens, and for whom.
	f.IntVar(&o.Port, "port", 4222, "port to listen on; 0 for a free one")
	f.StringVar(
		&o.Host,
		"host",
		"127.0.0.1",
		"address to listen on; addresses other than loopback need --token-file or --auth",
	)
	f.String("token-file", "", "file with the token that clients must present; with --auth only the servers of a "+
		"cluster present it")
	f.StringVar(&o.Auth, "auth", "", "file auth.conf of exoswarm auth init: clients log in as its users")
	f.StringVar(
		&o.Cert,
		"tls-cert",
		"",
		"file with the server's certificate, in PEM; clients and other servers must use TLS",
	)
	f.StringVar(&o.Key, "tls-key", "", "file with the key of --tls-cert")
	f.StringVar(
		&o.CA,
		"tls-ca",
		"",
		"file with the certificates, in PEM, that must have signed the certificates of clients "+
			"and other servers; empty: clients need none",
	)
	// What it stores, and how.
	f.StringVar(&o.Dir, "data-dir", "", "folder for the streams (required)")
	f.String("key-file", "", "file with the key that encrypts the streams, as 64 hexadecimal digits, readable by "+
		"its owner alone; a second line is the former key, to rotate; empty: not encrypted")
	// The other servers of its cluster.
	f.StringVar(&o.Name, "name", "", "name of this server, unique in its cluster")
	f.IntVar(&o.ClusterPort, "cluster-port", 0, "port for the other servers of a cluster; 0: no cluster")
	f.StringArray("route", nil, "HOST:PORT: the cluster port of another server; may be given several times, or as "+
		"several separated by commas")
	f.StringVar(
		&o.Monitor,
		"monitor",
		"",
		"HOST:PORT of the monitoring endpoints of NATS (/varz, /jsz, /healthz) over HTTP, for "+
			"whoever asks; empty for none",
	)
	f.BoolVar(&o.Fast, "fast", false, "do not sync every message to disk: a power cut can lose the last 100 ms")
	command.LogFlags(f)
	return cmd
}

// serveNATS runs the server until a signal, or until its disk is full, which is an error. It
// logs the URL when the server answers. All flags are checked before the server opens its
// folder.
//
// Without --fast the server syncs each message to the disk before it acknowledges it, so that a
// power cut loses nothing that was acknowledged. The order matters to a supervisor: the line with
// the URL is logged after the streams are open, so a client may connect as soon as it is there. A
// supervisor may restart it at any time: streams recover at the start, before the URL is logged.
func serveNATS(cmd *cobra.Command, o server.Options) error {
	f := cmd.Flags()
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	o.Logger = log
	routes, _ := f.GetStringArray("route")
	for _, list := range routes { // an environment variable is one value
		o.Routes = append(o.Routes, strings.Split(list, ",")...)
	}
	if o.Dir == "" {
		return command.Usage("nats: --data-dir is missing: name a folder for the streams")
	}
	if o.Port < 0 || o.Port > 65535 {
		return command.Usage("nats: --port %d: use 0 to 65535", o.Port)
	}
	if o.ClusterPort < 0 || o.ClusterPort > 65535 {
		return command.Usage("nats: --cluster-port %d: use 0 to 65535", o.ClusterPort)
	}
	if strings.HasPrefix(o.Name, "-") {
		return command.Usage("nats: --name %s: a name with a first '-' looks like a flag: choose another one", o.Name)
	}
	// Servers of a cluster with the same name take each other for one server, and lose streams.
	if o.ClusterPort > 0 && o.Name == "" {
		return command.Usage("nats: --cluster-port needs a --name that no other server of the cluster has")
	}
	if o.Auth != "" {
		if _, err := os.Stat(o.Auth); err != nil {
			return command.Usage("nats: --auth: %v: make it with exoswarm auth init", err)
		}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return command.Usage("nats: --data-dir: %v", err)
	}
	if file, _ := f.GetString("token-file"); file != "" {
		token, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return command.Usage("nats: --token-file: %v", err)
		}
		// An empty token would let everybody in.
		if o.Token = strings.TrimSpace(string(token)); o.Token == "" {
			return command.Usage("nats: --token-file %s is empty", file)
		}
	}
	if file, _ := f.GetString("key-file"); file != "" {
		if o.Keys, err = keyring.Read(file); err != nil {
			return command.Usage("nats: --key-file: %v", err)
		}
	}
	service := command.NewService(log)
	defer service.Close()
	s, err := server.Start(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer s.Close()
	if url := s.MonitorURL(); url != "" {
		log.Info("serving the monitoring endpoints", "url", url)
	}
	log.Info("nats is ready", "url", s.URL(), "data", o.Dir)
	service.Ready(func() { s.Clients() })
	// The deferred call closes the server, and waits until its store is on the disk.
	select {
	case <-cmd.Context().Done():
		log.Info("stopping", "reason", context.Cause(cmd.Context()))
		service.Stopping(context.Cause(cmd.Context()))
		return nil
	case <-s.Full():
		return fmt.Errorf("nats: no space left on the disk of %s: free some and start again", o.Dir)
	}
}
