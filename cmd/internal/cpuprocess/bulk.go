package cpuprocess

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs/bulk"
)

// sweepBulk is the time between two looks for payloads that no replay needs any more.
const sweepBulk = 10 * time.Second

// bulkFlags adds the flags of the bulk lane.
func bulkFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.String("bulk", "", "folder of observations beside the log, which swarm observe --bulk writes on this machine "+
		"and this agent serves to GPU agents; none by default")
	f.String("bulk-listen", "127.0.0.1:4280", "HOST:PORT to serve --bulk on")
	f.String("bulk-place", "", "HOST:PORT under which GPU agents reach --bulk-listen; it is stored in logs and must "+
		"stay the same; empty: that of --bulk-listen")
	f.String("bulk-cert", "", "file with the certificate of --bulk-listen, in PEM")
	f.String("bulk-key", "", "file with the key of --bulk-cert")
}

// bulkSettings are the values of the flags of the bulk lane.
type bulkSettings struct {
	dir, listen, place string
	secure             *tls.Config // nil: without TLS
}

// readBulk reads the flags; nil without --bulk, and then the others are errors of usage.
func readBulk(cmd *cobra.Command) (*bulkSettings, error) {
	f := cmd.Flags()
	s := &bulkSettings{}
	s.dir, _ = f.GetString("bulk")
	s.listen, _ = f.GetString("bulk-listen")
	s.place, _ = f.GetString("bulk-place")
	cert, _ := f.GetString("bulk-cert")
	key, _ := f.GetString("bulk-key")
	if s.dir == "" {
		if s.place != "" || cert != "" || key != "" || f.Changed("bulk-listen") {
			return nil, command.Usage("--bulk-listen, --bulk-place, --bulk-cert and --bulk-key are for --bulk FOLDER")
		}
		return nil, nil
	}
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return nil, command.Usage("--bulk-listen %q: use HOST:PORT", s.listen)
	}
	if ip, err := netip.ParseAddr(host); s.place == "" && (host == "" || err == nil && ip.IsUnspecified()) {
		return nil, command.Usage("--bulk-place is missing: say under which HOST:PORT GPU agents reach %s", s.listen)
	}
	if s.place != "" {
		if h, p, err := net.SplitHostPort(s.place); err != nil || h == "" || p == "" || p == "0" {
			return nil, command.Usage("--bulk-place %q: use HOST:PORT", s.place)
		}
	}
	if (cert == "") != (key == "") {
		return nil, command.Usage("--bulk-cert and --bulk-key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, command.Usage("--bulk-cert: %v", err)
		}
		s.secure = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	return s, nil
}

// serveBulk serves the folder until the server is closed; nil without --bulk. An address that is
// taken and a folder that another process serves are errors of usage.
func serveBulk(s *bulkSettings, r prometheus.Registerer, log *slog.Logger) (*bulk.Server, error) {
	if s == nil {
		return nil, nil
	}
	spool, err := bulk.OpenSpool(bulk.SpoolOptions{Dir: s.dir})
	if err != nil {
		return nil, command.Usage("--bulk: %v", err)
	}
	m, err := bulk.NewMetrics(r)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return nil, command.Usage("--bulk-listen %s: %v", s.listen, err)
	}
	at := bulk.Place{Address: s.place, TLS: s.secure != nil}
	if at.Address == "" {
		at.Address = l.Addr().String()
	}
	if s.secure != nil {
		l = tls.NewListener(l, s.secure)
	} else if host, _, err := net.SplitHostPort(s.listen); err == nil && !loopback(host) {
		log.Warn("observations can be read on their way: give the bulk lane a certificate", "addr", s.listen)
	}
	srv, err := bulk.Serve(bulk.ServerOptions{Spool: spool, Listener: l, Place: at, Metrics: m, Logger: log})
	if err != nil {
		return nil, command.Usage("--bulk: %v", err)
	}
	log.Info("serving observations beside the log", "folder", s.dir, "addr", l.Addr().String(), "place", at.Address,
		"tls", at.TLS)
	return srv, nil
}

// loopback reports whether only this machine reaches a host to listen on.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}

// closeBulk ends the server, if there is one.
func closeBulk(s *bulk.Server, err error) error {
	if s == nil {
		return err
	}
	return errors.Join(err, s.Close())
}
