package command

import (
	"os"
	"os/user"

	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// Person returns who runs this command, for the audit: the user of the NATS login where that has a
// name, else the user of the operating system. From has the latter, and the name of the machine.
func Person(login, via string) control.Actor {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	by := control.Actor{User: login, From: name + "@" + host, Via: via}
	if login == "" {
		by.User = name
	}
	return by
}
