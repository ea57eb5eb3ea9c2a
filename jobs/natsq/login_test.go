package natsq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// certificates writes a CA of that name and a certificate it has signed, for servers and clients on
// loopback, and returns their files.
func certificates(t *testing.T, name string) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(file, kind string, der []byte) string {
		p := filepath.Join(dir, file)
		if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	sign := func(tmpl, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			by = k
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &k.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der, k
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootDER, rootKey := sign(root, root, nil)
	leafDER, leafKey := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotBefore: root.NotBefore,
		NotAfter:    root.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth,
		},
	}, root, rootKey)
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return write("ca.pem", "CERTIFICATE", rootDER), write("cert.pem", "CERTIFICATE", leafDER),
		write("key.pem", "EC PRIVATE KEY", keyDER)
}

// TestTLS: a server with certificates accepts clients that trust it and show a certificate that it
// trusts. It refuses other clients, and the refusal says what to check.
func TestTLS(t *testing.T) {
	ca, cert, key := certificates(t, "ours")
	otherCA, otherCert, otherKey := certificates(t, "theirs")
	s := jobstest.Start(t, server.Options{Cert: cert, Key: key, CA: ca})
	context := filepath.Join(t.TempDir(), "prod.json")
	data, err := json.Marshal(map[string]string{"url": s.URL(), "ca": ca, "cert": cert, "key": key})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(context, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url   string
		login natsconn.Login
		want  string // of the error; empty when it connects
	}{
		"trusted":      {s.URL(), natsconn.Login{CA: ca, Cert: cert, Key: key}, ""},
		"by a context": {"", natsconn.Login{Context: context}, ""},
		"context of nowhere": {"nats://127.0.0.1:1", natsconn.Login{Context: context}, "no NATS server answers at " +
			"nats://127.0.0.1:1"},
		// The server checks the certificate after the handshake is over for the client. Whether its
		// alert or the closed connection arrives first depends on the schedule.
		"no certificate":      {s.URL(), natsconn.Login{CA: ca}, "127.0.0.1"},
		"another certificate": {s.URL(), natsconn.Login{CA: ca, Cert: otherCert, Key: otherKey}, "127.0.0.1"},
		"another CA":          {s.URL(), natsconn.Login{CA: otherCA, Cert: cert, Key: key}, "check the CA"},
		"a key missing":       {s.URL(), natsconn.Login{CA: ca, Cert: cert}, "come together"},
		"a file missing":      {s.URL(), natsconn.Login{CA: "/none/ca.pem"}, "/none/ca.pem"},
		"no such context":     {"", natsconn.Login{Context: "/none/context.json"}, "context /none/context.json"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: c.url, Login: c.login})
			if err == nil {
				defer conn.Close()
				if end := time.Until(expiry(t, conn)); end <= 0 || end > time.Hour {
					t.Errorf("the certificate ends in %v", end)
				}
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// expiry returns the end of a login in the metrics of its connection; zero without one.
func expiry(t *testing.T, c *natsq.Conn) time.Time {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c.Collector()); err != nil {
		t.Fatal(err)
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "exoswarm_credentials_expiry_timestamp_seconds" {
			return time.Unix(int64(f.GetMetric()[0].GetGauge().GetValue()), 0)
		}
	}
	return time.Time{}
}

// TestExpiry: the metrics have the end of the credentials or of the client certificate, the earlier
// one.
func TestExpiry(t *testing.T) {
	ca, cert, key := certificates(t, "ours")
	folder, err := auth.Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if _, err := folder.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	s := jobstest.Start(t, server.Options{Cert: cert, Key: key, CA: ca, Auth: folder.ConfigFile()})
	for name, life := range map[string]time.Duration{"forever": 0, "short": time.Minute, "long": 1000 * time.Hour} {
		u := auth.User{Name: name, Role: auth.Operator}
		if life > 0 {
			u.Expires = time.Now().Add(life)
		}
		file, err := folder.AddUser(u)
		if err != nil {
			t.Fatal(err)
		}
		c, err := natsq.Connect(t.Context(), natsconn.Options{
			URL: s.URL(), Login: natsconn.Login{Credentials: file, CA: ca, Cert: cert, Key: key},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		first := expiry(t, c)
		if (time.Until(first) <= time.Minute) != (name == "short") || time.Until(first) > time.Hour {
			t.Errorf("user %s: the login ends at %v", name, first)
		}
	}
}

// TestLoginErrors: a wrong secret is told apart from a server that is not there, and is not
// repeated in the error.
func TestLoginErrors(t *testing.T) {
	s := jobstest.Start(t, server.Options{Token: "right"})
	for name, c := range map[string]struct {
		url   string
		login natsconn.Login
	}{
		"token":        {s.URL(), natsconn.Login{Token: "wr0ng-secret"}},
		"token in URL": {strings.Replace(s.URL(), "nats://", "nats://wr0ng-secret@", 1), natsconn.Login{}},
		"password":     {s.URL(), natsconn.Login{User: "u", Password: "wr0ng-secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := natsq.Connect(t.Context(), natsconn.Options{URL: c.url, Login: c.login})
			if err == nil || !strings.Contains(err.Error(), "does not let us in") ||
				strings.Contains(err.Error(), "wr0ng") {
				t.Error(err)
			}
		})
	}
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Login: natsconn.Login{Token: "right"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, o := range []server.Options{{Cert: "c.pem"}, {CA: "ca.pem"}, {Cert: "/none/c.pem", Key: "/none/k.pem"}} {
		o.Dir = t.TempDir()
		if s, err := server.Start(t.Context(), o); err == nil {
			s.Close()
			t.Errorf("%+v started", o)
		}
	}
}
