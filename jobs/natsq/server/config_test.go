package server

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
)

// TestDeployedConfig: the file under deploy/nats says what the embedded server does: every
// acknowledgement is on the disk.
func TestDeployedConfig(t *testing.T) {
	for name, value := range map[string]string{
		"NATS_SERVER_NAME": "n1", "NATS_ROUTE_PASSWORD": "secret",
		"NATS_ROUTE_1": "nats-route://exoswarm:secret@nats-1:6222",
		"NATS_ROUTE_2": "nats-route://exoswarm:secret@nats-2:6222",
		"NATS_ROUTE_3": "nats-route://exoswarm:secret@nats-3:6222",
	} {
		t.Setenv(name, value)
	}
	text, err := os.ReadFile("../../../deploy/nats/nats-server.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := auth.Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	// the folder is made as the file is read
	file, kept := filepath.Join(dir, "nats-server.conf"), filepath.Join(dir, "kept")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("/var/lib/nats/accounts"), []byte(kept)),
		0o600); err != nil {
		t.Fatal(err)
	}
	o, err := natsd.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !o.SyncAlways || !o.JetStream || o.MaxPayload != MaxPayload || o.ServerName != "n1" {
		t.Errorf("%+v", o)
	}
	if r, ok := o.AccountResolver.(*natsd.DirAccResolver); !ok || len(o.TrustedOperators) != 1 ||
		o.SystemAccount == "" {
		t.Errorf("resolver %T, operators %v, system account %q", o.AccountResolver, o.TrustedOperators, o.SystemAccount)
	} else {
		r.Close()
	}
	if len(o.Routes) != 3 || o.Cluster.Password != "secret" || o.Routes[2].Host != "nats-3:6222" {
		t.Errorf("routes %v, cluster %+v", o.Routes, o.Cluster)
	}
	if p, _ := o.Routes[0].User.Password(); p != "secret" {
		t.Errorf("routes without the password: %v", o.Routes[0])
	}
}
