package server

import (
	"testing"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// TestDeployedConfig: the file under deploy/nats says what the embedded server does: every acknowledgement is on the disk.
func TestDeployedConfig(t *testing.T) {
	for name, value := range map[string]string{
		"NATS_SERVER_NAME": "n1", "NATS_TOKEN": "a-token", "NATS_ROUTE_PASSWORD": "secret",
		"NATS_ROUTE_1": "nats-route://exoswarm:secret@nats-1:6222", "NATS_ROUTE_2": "nats-route://exoswarm:secret@nats-2:6222",
		"NATS_ROUTE_3": "nats-route://exoswarm:secret@nats-3:6222",
	} {
		t.Setenv(name, value)
	}
	o, err := natsd.ProcessConfigFile("../../../deploy/nats/nats-server.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.SyncAlways || !o.JetStream || o.MaxPayload != MaxPayload || o.Authorization != "a-token" || o.ServerName != "n1" {
		t.Errorf("%+v", o)
	}
	if len(o.Routes) != 3 || o.Cluster.Password != "secret" || o.Routes[2].Host != "nats-3:6222" {
		t.Errorf("routes %v, cluster %+v", o.Routes, o.Cluster)
	}
	if p, _ := o.Routes[0].User.Password(); p != "secret" {
		t.Errorf("routes without the password: %v", o.Routes[0])
	}
}
