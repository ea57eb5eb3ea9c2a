package source

import (
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// TestMQTTRefuses: what is no filter, may not be reached, has no end, or is beyond a bound.
func TestMQTTRefuses(t *testing.T) {
	for uri, one := range map[string]struct {
		spec *MQTTSpec
		want string
	}{
		"mqtt://127.0.0.1:1883/plant/+/x/#": {&MQTTSpec{Messages: 1}, ""},
		"mqtts://127.0.0.1:8883/a":          {&MQTTSpec{For: 1}, ""},
		"mqtt://127.0.0.1:1883/end":         {&MQTTSpec{}, "it has no end"},
		"mqtt://127.0.0.1:1883/":            {&MQTTSpec{Messages: 1}, "use 1 to 1024 bytes"},
		"mqtt://127.0.0.1:1883/a/#/b":       {&MQTTSpec{Messages: 1}, "# is the last one"},
		"mqtt://127.0.0.1:1883/a+":          {&MQTTSpec{Messages: 1}, "+ is a level of its own"},
		"mqtt:///a":                         {&MQTTSpec{Messages: 1}, "write mqtt://HOST:PORT/FILTER"},
		"mqtt://u@127.0.0.1/a":              {&MQTTSpec{Messages: 1}, "write mqtt://HOST:PORT/FILTER"},
		"mqtt://10.0.0.1/a":                 {&MQTTSpec{Messages: 1}, access.ErrHost.Error()},
		"mqtt://127.0.0.1:1883/b":           {&MQTTSpec{Messages: 1, BatchMessages: 257}, "use 1 to 256"},
		"mqtt://127.0.0.1:1883/s":           {&MQTTSpec{Messages: 1, Session: 1}, "use 60 to"},
		"mqtt://127.0.0.1:1883/p":           {&MQTTSpec{Messages: 1, Password: "env:NONE"}, "password needs user"},
	} {
		_, err := newMQTTFetcher(uri, "", one.spec, "c", Resources{Egress: fixture.Loopback(t)})
		refused(t, uri, err, one.want)
	}
}
