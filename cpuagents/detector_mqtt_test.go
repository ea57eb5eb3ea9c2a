package cpuagents_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// publish publishes messages.
func publish(t *testing.T, p *servertest.Publisher, topic string, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := p.Publish(topic, []byte(m), false); err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
}

// subscribed waits until a detector has begun its session: until a message comes to it.
func (c *cluster) subscribed(t *testing.T, name, topic string, p *servertest.Publisher, topicAs bool,
) (sent int) {
	t.Helper()
	testkit.Until(t, "the detector to subscribe", func() bool {
		if c.decided(t, name) > 0 {
			return true
		}
		id := `,"id":"first"`
		if topicAs {
			id = ""
		}
		publish(t, p, topic, fmt.Sprintf("{\"timestamp\":%d,\"value\":1%s}", 1600000000+sent, id))
		sent++
		return false
	})
	return sent
}

// TestDetectorMQTT: a detector over topics that is stopped at random moments decides each message
// once. More messages than the broker sends ahead come while it is away.
func TestDetectorMQTT(t *testing.T) {
	t.Parallel()
	b := servertest.StartMQTT(t)
	c := newCluster(t)
	p := b.Publisher(t)
	job := detectorJob(t, "topics", 40, []source.Series{{
		Name: "m", URI: "mqtt://" + b.Address + "/plant/#", MQTT: &source.MQTTSpec{BatchSeconds: 0.005},
	}}, nil)
	now := c.detect(t, job)
	c.subscribed(t, "topics", "plant/first", p, false)
	all := detectorRows(3000)
	if testing.Short() {
		all = detectorRows(1200) // 3,000 take a minute with the race detector
	}
	r := rand.New(rand.NewPCG(14, 14))
	stops, away := 0, false
	for part := range slices.Chunk(all, 30) {
		publish(t, p, fmt.Sprint("plant/", r.IntN(4)), part...)
		if r.IntN(4) > 0 {
			continue
		}
		if away {
			now = c.detect(t, job)
		} else {
			stops++
			now.end(t, jobs.ErrDrain)
		}
		if away = !away; away && stops%3 == 0 {
			publish(t, p, "plant/away", "{}") // a reject
		}
	}
	if away {
		now = c.detect(t, job)
	}
	ours := func() (got []string) {
		for _, d := range c.decisionsOf(t, "topics") {
			if !strings.HasPrefix(d, "first") {
				got = append(got, d)
			}
		}
		return got
	}
	testkit.Until(t, "all decisions", func() bool { return len(ours()) >= len(all) })
	now.end(t, jobs.ErrFinish)
	seen := map[string]bool{}
	for _, d := range ours() {
		if seen[d] {
			t.Errorf("twice: %s", d)
		}
		seen[d] = true
	}
	if p := now.result; len(seen) != len(all) || p.Rejected != uint64(stops/3) || stops < 5 {
		t.Errorf("after %d stops %d rows have a decision: %+v", stops, len(seen), p)
	}
}

// TestDetectorMQTTBad: what is no row, a message of 10 MB, a retained message, and what an earlier
// detector of the same name has left on the broker. The topic is the key.
func TestDetectorMQTTBad(t *testing.T) {
	t.Parallel()
	b := servertest.StartMQTT(t)
	c := newCluster(t)
	p := b.Publisher(t)
	if err := p.Publish("plant/old", []byte(`{"timestamp":1,"value":1}`), true); err != nil {
		t.Fatal(err)
	}
	src := []source.Series{{
		Name: "m", URI: "mqtt://" + b.Address + "/plant/+", MQTT: &source.MQTTSpec{TopicAs: "id", Client: "mine"},
	}}
	d := c.detect(t, detectorJob(t, "bad", 4, src, nil))
	sent := c.subscribed(t, "bad", "plant/first", p, true)
	c.awaitDecisions(t, "bad", 1)
	before := uint64(len(c.decisionsOf(t, "bad")))
	publish(t, p, "plant/a", `{"timestamp":1,"value":1}`, `{"timestamp":2,"value":1}`, "21.5", "{}", "",
		`{"timestamp":3,"value":"`+strings.Repeat("9", 100_000)+`"}`, strings.Repeat("x", 10<<20),
		strings.Repeat("x", 17<<20))
	publish(t, p, "plant/b", `{ "timestamp":1,"value":1}`)
	// Rows alone do not tell: messages of subscribed may come late, and count too.
	testkit.Until(t, "the rows and the rejects", func() bool {
		p := d.progress.Load()
		return p.Rows >= before+3 && p.Rejected >= 4 && p.Entities >= 3
	})
	d.end(t, jobs.ErrFinish)
	r := d.result
	if r.Entities != 3 || r.Rejected != 4 || r.Rows > uint64(sent)+3 || r.Decisions != r.Rows {
		t.Errorf("the result is %+v", r)
	}
	for _, got := range c.decisionsOf(t, "bad") {
		if strings.HasPrefix(got, "plant/old") {
			t.Errorf("a retained message is a row: %s", got)
		}
	}
	// Messages for the session of an earlier detector do not come to a later one.
	publish(t, p, "plant/c", `{"timestamp":1,"value":1}`)
	d = c.detect(t, detectorJob(t, "later", 4, src, nil))
	c.subscribed(t, "later", "plant/d", p, true)
	d.end(t, jobs.ErrFinish)
	if r := d.result; r.Entities != 1 {
		t.Errorf("the later detector has %+v", r)
	}
}

// TestDetectorMQTTBroker: a detector waits for a broker that is gone, and continues with the
// session that the broker has kept. A session that is lost is a reject.
func TestDetectorMQTTBroker(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	b := servertest.StartMQTT(t)
	c := newCluster(t)
	job := detectorJob(t, "broker", 9, []source.Series{{Name: "m", URI: "mqtt://" + b.Address + "/plant/+"}}, nil)
	d := c.detect(t, job)
	p := b.Publisher(t)
	c.subscribed(t, "broker", "plant/a", p, false)
	for i, lost := range []bool{false, true} {
		failures := d.progress.Load().SourceFailures
		b.End(t)
		if lost {
			b.Forget(t)
		}
		testkit.Until(t, "a failure", func() bool { return d.progress.Load().SourceFailures > failures })
		b.Restart(t)
		p := b.Publisher(t)
		if !lost { // the session is there before the detector is
			publish(t, p, "plant/b", `{"timestamp":1,"value":1,"id":"kept"}`)
		}
		n := 0
		testkit.Until(t, "a decision after the restart", func() bool {
			publish(t, p, "plant/c", fmt.Sprintf(`{"timestamp":%d,"value":1,"id":"again%d"}`, n, i))
			n++
			return slices.ContainsFunc(c.decisionsOf(t, "broker"), func(d string) bool {
				return strings.HasPrefix(d, fmt.Sprint("again", i))
			})
		})
	}
	d.end(t, jobs.ErrFinish)
	kept := slices.ContainsFunc(c.decisionsOf(t, "broker"), func(d string) bool { return strings.HasPrefix(d, "kept") })
	if r := d.result; !kept || r.Rejected != 1 || r.SourceFailures < 2 {
		t.Errorf("the message for the session came: %v, the result is %+v", kept, r)
	}
}

// TestDetectorMQTTPassword: the right password reads, and a wrong one fails the detector with a
// cure and without the password.
func TestDetectorMQTTPassword(t *testing.T) {
	b := servertest.StartClosedMQTT(t)
	c := newCluster(t)
	for _, password := range []string{servertest.Password, "wrong-42"} {
		t.Setenv("EXOSWARM_SECRET_MQTT", password)
		name := "user-" + password[:5]
		d := c.detect(t, detectorJob(t, name, 9, []source.Series{{
			Name: "m", URI: "mqtt://" + b.Address + "/plant/+",
			MQTT: &source.MQTTSpec{User: servertest.User, Password: "env:MQTT"},
		}}, nil))
		if password == servertest.Password {
			c.awaitJournal(t, name) // the broker has accepted the login
			d.end(t, jobs.ErrFinish)
			continue
		}
		select {
		case err := <-d.ended:
			if jobs.AsError(err).Code != jobs.CodeInput ||
				!strings.Contains(err.Error(), "check user, password and rights") ||
				strings.Contains(err.Error(), password) {
				t.Errorf("a wrong password: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("a wrong password does not fail the detector")
		}
	}
}
