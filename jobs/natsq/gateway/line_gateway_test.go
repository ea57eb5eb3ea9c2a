package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestGatewayOpenQuestions: 70 waiting requests of one tenant delay the requests of another tenant
// by less than 100 ms, while the first is connected and after it has gone. Requests beyond the
// bound are refused.
func TestGatewayOpenQuestions(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	via := jobstest.Open(t, s, natsq.Connect)
	g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	dial := func() *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	acme, umbrella := dial(), dial()
	// took is the median of some lists of the other tenant.
	took := func() time.Duration {
		t.Helper()
		var all []time.Duration
		for range 15 {
			began := time.Now()
			m, err := umbrella.Request("exo.tenant.umbrella.list.cpu", nil, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(m.Data), `"listed":[]`) {
				t.Fatalf("%s", m.Data)
			}
			all = append(all, time.Since(began))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	quiet := took()
	inbox := acme.NewInbox()
	answers, err := acme.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(n int, wait string) {
		t.Helper()
		for i := range n {
			if err := acme.PublishRequest(fmt.Sprintf("exo.tenant.acme.result.none%d", i), inbox,
				[]byte(`{"wait_s":`+wait+`}`)); err != nil {
				t.Fatal(err)
			}
		}
		if err := acme.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	ask(70, "300")
	open := took()
	t.Logf("median of a list: %v, with 70 open questions of another tenant %v", quiet, open)
	if open > time.Minute { // the questions wait for five minutes
		t.Errorf("70 open questions delay another tenant: %v, quiet %v", open, quiet)
	}
	// Requests beyond the limit of a tenant are refused, and the admitted ones continue.
	ask(512, "300")
	refused := 0
	for refused < 70 {
		m, err := answers.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Error struct {
				Code       string  `json:"code"`
				RetryAfter float64 `json:"retry_after_s"`
			} `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Error.Code != "full" && r.Error.Code != "unavailable" {
			t.Fatalf("%s, %v", m.Data, err)
		}
		refused++
	}
	acme.Close()
	if gone := took(); gone > time.Minute {
		t.Errorf("after the tenant has gone its questions delay another: %v, quiet %v", gone, quiet)
	}
}
