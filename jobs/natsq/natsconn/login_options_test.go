package natsconn

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestLogins: which options make a login, and that no secret of them stands in an error.
func TestLogins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		l    Login
		n    int
		want string
	}{
		"none": {Login{}, 0, ""}, "user": {Login{User: "u", Password: "p"}, 1, ""}, "token": {Login{Token: "t"}, 1, ""},
		"credentials": {Login{Credentials: file}, 1, ""}, "CA": {Login{CA: file}, 1, ""},
		"certificate": {Login{Cert: file, Key: file}, 1, ""},
		"all":         {Login{User: "u", Token: "t", Credentials: file, CA: file, Cert: file, Key: file}, 5, ""},
		"no file":     {Login{Credentials: "/none/c"}, 0, "log in to NATS: credentials: "},
		"no nkey":     {Login{NKey: "/none/n"}, 0, "log in to NATS: nkey: "},
		"no CA":       {Login{CA: "/none/ca"}, 0, "log in to NATS: CA: "},
		"no cert":     {Login{Cert: "/none/c", Key: file}, 0, "log in to NATS: certificate: "},
		"no key":      {Login{Cert: file, Key: "/none/k"}, 0, "log in to NATS: key: "},
		"half":        {Login{Cert: file}, 0, "come together"}, "other half": {Login{Key: file}, 0, "come together"},
		"a bad nkey": {Login{NKey: file}, 0, "log in to NATS: nkey " + file},
	} {
		opts, err := c.l.options()
		if len(opts) != c.n || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d options, %v, want %d, %s", name, len(opts), err, c.n, c.want)
		}
	}
	for _, c := range []struct {
		o    Options
		text string
		want string
	}{
		{Options{Login: Login{Password: "hunter2"}}, "no hunter2 here", "hunter2"},
		{Options{Login: Login{Token: "hunter2"}}, "no hunter2 here", "hunter2"},
		{Options{URL: "nats://u5er:hunter2@h:1"}, "dial nats://u5er:hunter2@h:1 as u5er", "hunter2 u5er"},
		{Options{URL: "nats://t0ken@h:1,nats://other@h:2"}, "t0ken and other", "t0ken other"},
		{Options{URL: "u5er:hunter2@h:1"}, "u5er, hunter2", "hunter2 u5er"},
	} {
		cause := errors.New(c.text)
		err := c.o.scrub(cause)
		for secret := range strings.FieldsSeq(c.want) {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%+v: %v", c.o, err)
			}
		}
		if !errors.Is(err, cause) {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
	plainly := errors.New("nothing secret")
	if err := (Options{Login: Login{Token: "t0ken"}}).scrub(plainly); !errors.Is(err, plainly) {
		t.Errorf("%v", err)
	}
	if (Options{}).scrub(nil) != nil {
		t.Error("an error of nothing")
	}
	me := identity{name: "n", role: "agent"}
	for _, c := range []struct {
		who  identity
		err  error
		want string
	}{
		{identity{}, nats.ErrAuthorization, "does not let us in"},
		{me, nats.ErrAuthorization, "does not let user n (agent) in"},
		{identity{}, errors.New("nats: User Authentication Expired"), "does not let us in"},
		{identity{}, errors.New("authentication revoked"), "does not let us in"},
		{me, nats.ErrSecureConnRequired, "TLS: "},
		{me, nats.ErrSecureConnWanted, "TLS: "},
		{me, nats.ErrNoServers, "start one (exoswarm nats) or correct --nats"},
		{me, jobs.Errorf(jobs.CodeInvalid, "known"), "known"},
	} {
		err := dialError("h:1", c.who, c.err)
		if !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, jobs.ErrUnavailable) != errors.Is(c.err, nats.ErrNoServers) {
			t.Errorf("%v: %v, want %s", c.err, err, c.want)
		}
	}
	if refusesLogin(nil) || refusesLogin(errors.New("x")) {
		t.Error("that is no refusal")
	}
}

// TestLoginContexts: a context with a domain or an API prefix is refused, and a seed logs in.
func TestLoginContexts(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	dir := t.TempDir()
	for name, k := range map[string]struct{ text, want string }{
		"plain":  {`{"url":"` + s.URL() + `"}`, ""},
		"domain": {`{"url":"` + s.URL() + `","jetstream_domain":"d"}`, "has a JetStream domain or API prefix"},
		"prefix": {`{"url":"` + s.URL() + `","jetstream_api_prefix":"x"}`, "has a JetStream domain or API prefix"},
		"broken": {"{", "context "},
	} {
		path := filepath.Join(dir, name+".json")
		if err := os.WriteFile(path, []byte(k.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), Options{Login: Login{Context: path}})
		if err == nil {
			c.Close()
		}
		if (err == nil) != (k.want == "") || err != nil && !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(seed): "", "no seed": "log in to NATS: nkey "} {
		path := filepath.Join(dir, "seed")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		opts, err := Login{NKey: path}.options()
		if (err == nil) != (want == "") || err == nil && len(opts) != 1 || err != nil &&
			(jobs.AsError(err).Code != jobs.CodeInvalid || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%d options, %v", len(opts), err)
		}
		if err == nil {
			var o nats.Options
			if err := opts[0](&o); err != nil || o.Nkey == "" {
				t.Errorf("key %q, %v", o.Nkey, err)
			}
		}
	}
}

// TestDialErrors: what is in the way of a connection is said with its cure, and only what passes by
// waiting is ErrUnavailable.
func TestDialErrors(t *testing.T) {
	known := jobs.Errorf(jobs.CodeInvalid, "known")
	for name, c := range map[string]struct {
		err  error
		who  identity
		want string
		wait bool
	}{
		"known":   {err: known, want: "known"},
		"login":   {err: nats.ErrAuthorization, want: "does not let us in"},
		"expired": {err: errors.New("nats: User Authentication Expired"), want: "does not let us in"},
		"revoked": {err: errors.New("nats: user authentication revoked"), want: "does not let us in"},
		"somebody": {
			err: nats.ErrAuthorization, who: identity{name: "ann", role: "submitter"},
			want: "does not let",
		},
		"TLS":          {err: nats.ErrSecureConnRequired, want: "TLS"},
		"TLS unwanted": {err: nats.ErrSecureConnWanted, want: "TLS"},
		"certificate":  {err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, want: "TLS"},
		"refused": {
			err:  &net.OpError{Op: "dial", Err: errors.New("connection refused")},
			want: "no NATS server answers at here", wait: true,
		},
		"no servers": {err: nats.ErrNoServers, want: "no NATS server answers at here", wait: true},
		"no connection": {
			err: nats.ErrTimeout, who: identity{name: "ann"}, want: "no NATS server answers at here",
			wait: true,
		},
	} {
		err := dialError("here", c.who, c.err)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, jobs.ErrUnavailable) != c.wait {
			t.Errorf("%s: %v", name, err)
		}
		if c.who.name != "" && !c.wait && !strings.Contains(err.Error(), c.who.name) {
			t.Errorf("%s does not name the user: %v", name, err)
		}
	}
	if refusesLogin(nil) || refusesLogin(nats.ErrTimeout) {
		t.Error("a login is refused")
	}
}
