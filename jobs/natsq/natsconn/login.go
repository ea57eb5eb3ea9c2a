package natsconn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
)

// Login is how a connection authenticates itself and the server. Everything in it may be empty; a
// user or token may stand in the URL too. Secrets are in files or in the environment of whoever
// fills this, and never in a log or an error.
type Login struct {
	// Context is the name of a context of the nats tool, or the absolute path of one: a file with a
	// server and how to log in to it. It gives the URL where there is none, and what is set below
	// goes before it.
	Context string
	// Credentials is a file with a user's JWT and its seed, NKey one with a seed alone.
	Credentials, NKey     string
	User, Password, Token string
	// CA is a file with the certificates that the server's must be signed by, in PEM; empty for the
	// system's. Cert and Key are files with the client's own, for a server that asks for one.
	CA, Cert, Key string
}

// dial connects to the first server of the URL that answers. What the server refuses later is told
// to r.
func (l Login) dial(url string, r *violations, opts ...nats.Option) (*nats.Conn, error) {
	own, err := l.options()
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, own...), identify(&r.who), nats.ErrorHandler(r.onError),
		nats.DisconnectErrHandler(r.onDisconnect), nats.ReconnectHandler(r.onReconnect), nats.ClosedHandler(r.onClose))
	if l.Context == "" {
		return nats.Connect(url, opts...)
	}
	if url != "" { // what is set here goes before the context's
		opts = append(opts, func(o *nats.Options) error { o.Servers, o.Url = nil, url; return nil })
	}
	nc, set, err := natscontext.Connect(l.Context, opts...)
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", l.Context, err)
	}
	if set.JSDomain != "" || set.JSAPIPrefix != "" {
		nc.Close()
		return nil, jobs.Errorf(jobs.CodeInvalid, "context %s has a JetStream domain or API prefix: connect to the "+
			"servers of the domain themselves", l.Context)
	}
	return nc, nil
}

func (l Login) options() (opts []nats.Option, err error) {
	for what, file := range map[string]string{
		"credentials": l.Credentials, "nkey": l.NKey, "CA": l.CA,
		"certificate": l.Cert, "key": l.Key,
	} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil { // the client's own errors do not say which file
			return nil, jobs.Errorf(jobs.CodeInvalid, "log in to NATS: %s: %v", what, err)
		}
	}
	if (l.Cert == "") != (l.Key == "") {
		return nil, jobs.Errorf(jobs.CodeInvalid, "log in to NATS: a certificate and its key come together")
	}
	if l.Credentials != "" {
		opts = append(opts, nats.UserCredentials(l.Credentials))
	}
	if l.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(l.NKey)
		if err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "log in to NATS: nkey %s: %v", l.NKey, err)
		}
		opts = append(opts, o)
	}
	if l.User != "" {
		opts = append(opts, nats.UserInfo(l.User, l.Password))
	}
	if l.Token != "" {
		opts = append(opts, nats.Token(l.Token))
	}
	if l.CA != "" {
		opts = append(opts, nats.RootCAs(l.CA))
	}
	if l.Cert != "" {
		opts = append(opts, nats.ClientCert(l.Cert, l.Key))
	}
	return opts, nil
}

// Redact returns a list of URLs for logs and messages: without users, passwords and tokens.
func Redact(urls string) string { return redact.URLs(urls) }

// scrubbed is an error whose text names no secret. The NATS client quotes the URL in some of its
// errors.
type scrubbed struct {
	error
	text string
}

func (s scrubbed) Error() string { return s.text }
func (s scrubbed) Unwrap() error { return s.error }

// scrub removes the secrets of a connection from the text of an error.
func (o Options) scrub(err error) error {
	if err == nil {
		return nil
	}
	secrets := []string{o.Password, o.Token}
	for text := range strings.SplitSeq(o.URL, ",") {
		_, rest, ok := strings.Cut(text, "://")
		if !ok {
			rest = text
		}
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			user, password, _ := strings.Cut(rest[:at], ":")
			secrets = append(secrets, rest[:at], password, user)
		} else if !strings.Contains(redact.URLs(text), rest) { // half of a password with a comma in it
			_, password, _ := strings.Cut(rest, ":")
			secrets = append(secrets, rest, password)
		}
	}
	if text := redact.Words(err.Error(), secrets...); text != err.Error() {
		return scrubbed{err, text}
	}
	return err
}

// dialError returns why there is no connection, and what to do.
func dialError(where string, who identity, err error) error {
	var known *jobs.Error
	var op *net.OpError
	switch {
	case errors.As(err, &known):
		return err
	case refusesLogin(err) && who.name != "":
		return jobs.Errorf(jobs.CodeInvalid, "the NATS server at %s does not let %s in (%v): %s", where, who, err,
			who.renewal())
	case refusesLogin(err):
		return jobs.Errorf(jobs.CodeInvalid, "the NATS server at %s does not let us in (%v): %s", where, err,
			who.renewal())
	case errors.Is(err, nats.ErrTLS), errors.Is(err, nats.ErrSecureConnRequired),
		errors.Is(err, nats.ErrSecureConnWanted),
		errors.As(err, &op) && op.Op == "remote error": // so crypto/tls calls an alert of the other side
		return jobs.Errorf(jobs.CodeInvalid, "the NATS server at %s: TLS: %v: check the CA, and the certificate "+
			"where the server asks for one", where, err)
	}
	return fmt.Errorf("no NATS server answers at %s: %w: start one (exoswarm nats) or correct --nats: %w", where, err,
		jobs.ErrUnavailable)
}
