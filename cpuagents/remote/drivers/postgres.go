package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
)

const maxRow = 16 << 20

type postgresDriver struct{}

// Open implements remote.Database. The URI is postgres://USER@HOST:PORT/DATABASE. Each connection
// passes the guard. The agent's own environment gives no host, password or key. Errors never
// contain the password.
func (postgresDriver) Open(at remote.DatabaseAddress) (*sql.DB, error) {
	u, err := url.Parse(at.URI)
	if err != nil || u.Hostname() == "" || u.User == nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("write postgres://USER@HOST:PORT/DATABASE")
	}
	if _, has := u.User.Password(); has {
		return nil, errors.New("its URI holds a password: name a secret of the agent with password")
	}
	mode := at.TLS
	if mode == "" {
		mode = "verify-full"
	}
	if !slices.Contains([]string{"verify-full", "require", "disable"}, mode) {
		return nil, fmt.Errorf("tls %q: use verify-full, require or disable", mode)
	}
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	cfg, err := pgx.ParseConfig(fmt.Sprintf(
		"host=%s port=%s user=%s dbname=%s sslmode=%s passfile='' password=x",
		quote(u.Hostname()), quote(port), quote(u.User.Username()), quote(strings.Trim(u.Path, "/")), mode,
	))
	if err != nil {
		return nil, errors.New("write postgres://USER@HOST:PORT/DATABASE")
	}
	cfg.Password = ""
	if at.Password != "" {
		v, err := at.Secrets.At(u.Hostname()).Get(at.Password)
		if err != nil {
			return nil, err
		}
		cfg.Password = v.Reveal()
	}
	cfg.DialFunc = at.Egress.DialContext
	// the guard resolves
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.ConnectTimeout = 30 * time.Second
	cfg.MaxProtocolMessageBodyLen = maxRow // a row is held as a whole
	if !at.Write {
		cfg.RuntimeParams["default_transaction_read_only"] = "on"
	}
	return stdlib.OpenDB(*cfg), nil
}

// Limit implements remote.Database. The configuration of a connection has its bounds.
func (postgresDriver) Limit(*sql.Conn) error { return nil }

// Failure implements remote.Database. It tells by the SQLSTATE, whose first two characters are the
// class: after an error of connections, resources, rollbacks and interventions of an operator the
// same may succeed later.
func (postgresDriver) Failure(err error) (remote.Failure, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return remote.Failure{}, false
	}
	return remote.Failure{
		Text:      fmt.Sprintf("%s (%s)", e.Message, e.Code),
		Transient: slices.Contains([]string{"08", "53", "40", "57"}, e.Code[:min(2, len(e.Code))]),
		Exists:    e.Code == "23505" || e.Code == "42P07",
	}, true
}
