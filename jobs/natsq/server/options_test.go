package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
)

// certificates makes a CA, and a certificate of it for this machine with its key, as files.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	rootKey, ownKey := pair(), pair()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "own"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth,
		},
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	ownDER, err := x509.CreateCertificate(rand.Reader, own, root, &ownKey.PublicKey, rootKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(ownKey)
	if err != nil {
		t.Fatal(err)
	}
	return file("ca.pem", "CERTIFICATE", rootDER), file("own.pem", "CERTIFICATE", ownDER),
		file("own.key", "EC PRIVATE KEY", keyDER)
}

// port is one that was free a moment ago.
func port(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func varz(t *testing.T, s *Server) *natsd.Varz {
	t.Helper()
	v, err := s.ns.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOptionsRefused: each set of options that cannot be served has its sentence, and leaves no
// server behind.
func TestOptionsRefused(t *testing.T) {
	ca, cert, key := certificates(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("port: 4222\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("port: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f, err := auth.Open(filepath.Join(dir, "auth"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o       Options
		invalid bool
		want    string
	}{
		"open to all": {Options{Host: "0.0.0.0"}, true, "0.0.0.0 is not a loopback address: listening there " +
			"needs a token (--token-file) or accounts (--auth)"},
		"a name":            {Options{Host: "example.com"}, true, "is not a loopback address"},
		"accounts, cluster": {Options{Auth: f.ConfigFile(), ClusterPort: 1}, true, "know each other by a token"},
		"no folder":         {Options{Dir: filepath.Join(dir, "none")}, true, "data folder: "},
		"an unwritable folder": {
			Options{Dir: "/proc/self"},
			true,
			"data folder /proc/self: this process may not write there",
		},
		"a file":       {Options{Dir: text}, true, "is not a folder"},
		"no accounts":  {Options{Auth: text}, true, "names no operator or no system account"},
		"no auth file": {Options{Auth: filepath.Join(dir, "none")}, true, "make the file with exoswarm auth init"},
		"bad accounts": {Options{Auth: bad}, true, "make the file with exoswarm auth init"},
		"routes": {Options{Routes: []string{"127.0.0.1:1"}}, true, "routes without a cluster port: set " +
			"both (--cluster-port)"},
		"a route": {
			Options{ClusterPort: port(t), Routes: []string{"127.0.0.1:1", "127.0.0.1"}},
			true,
			`route "127.0.0.1": write HOST:PORT`,
		},
		"no key":         {Options{Cert: cert}, true, "a certificate and its key come together"},
		"no certificate": {Options{Key: key}, true, "a certificate and its key come together"},
		"a CA alone":     {Options{CA: ca}, true, "a CA without a certificate: set all three"},
		"cert not there": {Options{Cert: "none.pem", Key: key}, true, "TLS: stat none.pem"},
		"key not there":  {Options{Cert: cert, Key: "none.key"}, true, "TLS: stat none.key"},
		"CA not there":   {Options{Cert: cert, Key: key, CA: "none.ca"}, true, "TLS: stat none.ca"},
		"another key":    {Options{Cert: cert, Key: cert}, true, "TLS with " + cert},
		"no monitor":     {Options{Monitor: "8222"}, true, `monitoring address "8222": write HOST:PORT`},
		"busy monitor":   {Options{Monitor: taken.Addr().String()}, true, "choose another port, or :0 for a free one"},
		"a busy port": {
			Options{Port: taken.Addr().(*net.TCPAddr).Port}, true, "address already in use: choose another port",
		},
	} {
		if c.o.Dir == "" {
			c.o.Dir = t.TempDir()
		}
		s, err := Start(t.Context(), c.o)
		if err == nil {
			s.Close()
		}
		var e *jobs.Error
		if err == nil || !strings.HasPrefix(err.Error(), "nats server: ") || !strings.Contains(err.Error(), c.want) ||
			errors.As(err, &e) && e.Code == jobs.CodeInvalid != c.invalid || c.invalid && e == nil {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Start(ended, Options{Dir: t.TempDir(), Port: InProcess}); err == nil {
		s.Close() // it was ready at once
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestOptions: what a server says of itself is what its options ask for.
func TestOptions(t *testing.T) {
	for name, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "localhost": true, "127.8.9.1": true,
		"0.0.0.0": false, "::": false, "10.0.0.1": false, "": false, "example.com": false,
	} {
		if loopback(name) != want {
			t.Errorf("loopback(%q) is %v", name, !want)
		}
	}
	dir := t.TempDir()
	s, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := varz(t, s)
	if v.Name != "exoswarm" || v.Host != "127.0.0.1" || v.AuthRequired || v.TLSRequired || v.MaxPayload != 1<<20 ||
		v.PingInterval != 2*time.Second || v.MaxPingsOut != 3 {
		t.Errorf("%+v", v)
	}
	if js := v.JetStream.Config; js == nil || !js.SyncAlways || js.MaxStore != 1<<50 || js.MaxMemory != 1<<30 ||
		!strings.HasPrefix(js.StoreDir, dir) {
		t.Errorf("%+v", js)
	}
	if c := v.Cluster; c.Name != "" || c.Port != 0 {
		t.Errorf("%+v", c)
	}
	if _, p, err := net.SplitHostPort(strings.TrimPrefix(s.URL(), "nats://")); err != nil || p == "0" {
		t.Errorf("%s, %v", s.URL(), err)
	}
	if _, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: v.Port}); err == nil {
		t.Error("two servers have a port")
	}
	s.Close()
	s.Close()
	own := port(t)
	fast, err := Start(t.Context(), Options{Dir: dir, Port: own, Name: "n7", Token: "t", Fast: true, Host: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	v = varz(t, fast)
	if js := v.JetStream.Config; v.Name != "n7" || v.Port != own || !v.AuthRequired || js.SyncAlways ||
		js.SyncInterval != fastSync {
		t.Errorf("%+v, %+v", v, js)
	}
	if nc, err := nats.Connect(fast.URL()); err == nil {
		nc.Close()
		t.Error("it lets in who has no token")
	}
	nc, err := nats.Connect(fast.URL(), nats.Token("t"))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	none, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: InProcess, Host: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if none.URL() != "" {
		t.Errorf("it listens at %s", none.URL())
	}
}

// TestOptionsTLS: with a certificate a client without TLS is refused, with a CA one without a
// certificate too, and servers of a cluster find each other by the CA and the token.
func TestOptionsTLS(t *testing.T) {
	ca, cert, key := certificates(t)
	connect := func(s *Server, opts ...nats.Option) error {
		nc, err := nats.Connect(fmt.Sprintf("tls://127.0.0.1:%d", varz(t, s).Port), append(opts, nats.Token("t"))...)
		if err == nil {
			nc.Close()
		}
		return err
	}
	for _, verify := range []bool{false, true} {
		o := Options{Dir: t.TempDir(), Cert: cert, Key: key, Token: "t"}
		if verify {
			o.CA = ca
		}
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		v := varz(t, s)
		if !v.TLSRequired || v.TLSVerify != verify || v.TLSTimeout != 5 || v.Cluster.TLSRequired {
			t.Errorf("verify %v: %+v", verify, v)
		}
		if err := connect(s, nats.RootCAs(ca)); (err == nil) == verify {
			t.Errorf("verify %v, without a certificate: %v", verify, err)
		}
		if err := connect(s, nats.RootCAs(ca), nats.ClientCert(cert, key)); err != nil {
			t.Errorf("verify %v, with a certificate: %v", verify, err)
		}
		if err := connect(s, nats.RootCAs(ca), nats.ClientCert(cert, key),
			nats.Secure(&tls.Config{MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true})); err == nil {
			t.Errorf("verify %v: TLS 1.1 is spoken", verify)
		}
		s.Close()
	}
	ports := []int{port(t), port(t)}
	type started struct {
		s   *Server
		err error
	}
	all := make(chan started, 2)
	for i := range ports { // JetStream of a cluster is ready when both are there
		o := Options{
			Dir: t.TempDir(), Name: fmt.Sprint("n", i), Token: "t", Cert: cert, Key: key, CA: ca,
			ClusterPort: ports[i], Routes: []string{fmt.Sprintf("127.0.0.1:%d", ports[1-i])},
		}
		go func() {
			s, err := Start(t.Context(), o)
			all <- started{s, err}
		}()
	}
	var both []*Server
	for range ports {
		one := <-all
		if one.err != nil {
			t.Fatal(one.err)
		}
		defer one.s.Close()
		both = append(both, one.s)
	}
	for _, s := range both {
		v := varz(t, s)
		if v.Cluster.Name != "exoswarm" || !v.Cluster.TLSRequired || v.Cluster.TLSTimeout != 5 ||
			!v.Cluster.TLSVerify || len(v.Cluster.URLs) != 1 {
			t.Errorf("%+v", v.Cluster)
		}
		deadline := time.After(2 * time.Minute)
		for s.ns.NumRoutes() == 0 {
			select {
			case <-deadline:
				t.Fatal("the servers do not find each other")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// TestKeyFile: which keys read the streams of a folder, by the note that is in it.
func TestKeyFile(t *testing.T) {
	keys := func(lines ...string) *keyring.Ring {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := keyring.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, two, three := strings.Repeat("11", 32), strings.Repeat("22", 32), strings.Repeat("33", 32)
	for name, c := range map[string]struct {
		note string // the key that the folder was written with
		ring *keyring.Ring
		want string // of the error
		old  string
	}{
		"none": {"", nil, "", ""}, "a first": {"", keys(one), "", ""}, "the same": {one, keys(one), "", ""},
		"rotated": {one, keys(two, one), "", one}, "rotated before": {two, keys(two, one), "", one},
		"lost":     {one, nil, "are encrypted: give the key (--key-file)", ""},
		"another":  {one, keys(two), "another key than the keys of the key file", ""},
		"others":   {one, keys(two, three), "another key than the keys of the key file", ""},
		"too many": {one, keys(three, two, one), "2 former keys in the key file", ""},
	} {
		o := Options{Dir: t.TempDir(), Keys: c.ring}
		path := filepath.Join(o.Dir, "exoswarm.key-id")
		if c.note != "" {
			if err := (Options{Dir: o.Dir, Keys: keys(c.note)}).encrypted(); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.ReadFile(path)
		opts := &natsd.Options{}
		err := o.encrypt(opts)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			continue
		}
		if c.ring != nil && (len(opts.JetStreamKey) != 64 || opts.JetStreamCipher != natsd.AES) || c.ring == nil &&
			opts.JetStreamKey != "" || opts.JetStreamOldKey != c.old {
			t.Errorf("%s: key of %d letters, cipher %v, former key %q", name, len(opts.JetStreamKey),
				opts.JetStreamCipher, opts.JetStreamOldKey)
		}
		if err := o.encrypted(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.ReadFile(path)
		if c.ring == nil {
			if err == nil {
				t.Errorf("%s: a note %q without a key", name, after)
			}
		} else if got := strings.TrimSpace(string(after)); got != keyID(c.ring.Current()) ||
			strings.Contains(got, one) {
			t.Errorf("%s: the note is %q, before %q", name, after, before)
		}
	}
	o := Options{Dir: t.TempDir(), Keys: keys(one)}
	if err := os.Mkdir(filepath.Join(o.Dir, "exoswarm.key-id"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := o.encrypt(&natsd.Options{}); err == nil || !strings.Contains(err.Error(), "key of the streams") {
		t.Error(err)
	}
	if err := o.encrypted(); err == nil || !strings.Contains(err.Error(), "key of the streams") {
		t.Error(err)
	}
}
