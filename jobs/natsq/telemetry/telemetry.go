// Package telemetry knows the agents and the NATS servers of a cluster: which agents are alive
// (Registry), and what they and the servers measure (Telemetry, Servers). It announces an agent and
// answers for it.
package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// subject is where all agents hear a question. A question reaches every agent, so one message
// serves any number of agents. Nothing is stored.
const subject = "exo.agent.telemetry"

type question struct {
	Version int      `json:"v"`
	Names   []string `json:"names"`
}

const maxNames = 200

// headroom is the part of the largest message that an answer leaves for its head.
const headroom = 4 << 10

// Telemetry asks and answers over a connection. Its methods may be called from several goroutines.
type Telemetry struct{ conn *natsconn.Conn }

// New returns the telemetry that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn) *Telemetry { return &Telemetry{c} }

// Answer answers questions in the name of an agent until stop is called. samples returns the values
// of the metrics of these names, and is called by one goroutine at a time, only for a question.
func (t *Telemetry) Answer(agent string, samples func(names []string) []jobs.Sample) (stop func(), err error) {
	limit := int(t.conn.NC.MaxPayload()) - headroom
	sub, err := t.conn.NC.Subscribe(subject, func(m *nats.Msg) {
		var q question
		if json.Unmarshal(m.Data, &q) != nil || len(q.Names) == 0 || len(q.Names) > maxNames || m.Reply == "" {
			return // anybody may publish it
		}
		data, err := encode(jobs.Telemetry{
			Version: jobs.Version, Agent: agent, At: time.Now(), Samples: samples(q.Names),
		}, limit)
		if err == nil {
			_ = m.Respond(data) // a lost answer is a missing row of one reading
		}
	})
	if err != nil {
		return nil, fmt.Errorf("answer questions for the numbers of agent %s: %w", agent, err)
	}
	t.settle()
	return func() { _ = sub.Unsubscribe() }, nil
}

// settlePatience bounds the wait for the server to know a subscription.
const settlePatience = 2 * time.Second

// settle waits until the server knows of the subscriptions so far. A server that learns of them
// later misses a question, which is asked again.
func (t *Telemetry) settle() { _ = t.conn.NC.FlushTimeout(settlePatience) }

// encode returns the answer as JSON of at most limit bytes: without the last samples if need be.
func encode(a jobs.Telemetry, limit int) ([]byte, error) {
	for {
		data, err := json.Marshal(a)
		if err != nil || len(data) <= limit || len(a.Samples) == 0 {
			return data, err
		}
		keep := len(a.Samples) * limit / len(data) * 9 / 10
		a.Omitted += len(a.Samples) - keep
		a.Samples = a.Samples[:keep]
	}
}

// Ask asks all agents for the metrics of these names, at most 200, and returns the answers by
// agent. It returns a little after the agents that are expected have answered, or when ctx ends:
// what has come until then is no error. agents are the names of the expected agents. An answer has
// the number of other processes that answered under the name, as far as they were quick enough.
func (t *Telemetry) Ask(ctx context.Context, names, agents []string) (map[string]jobs.Telemetry, error) {
	found := map[string]jobs.Telemetry{}
	if len(agents) == 0 || len(names) == 0 {
		return found, nil
	}
	if len(names) > maxNames {
		return nil, jobs.Errorf(jobs.CodeInvalid, "ask agents for %d metrics: at most %d", len(names), maxNames)
	}
	data, err := json.Marshal(question{jobs.Version, names})
	if err != nil {
		return nil, fmt.Errorf("ask agents for their numbers: %w", err)
	}
	missing := map[string]bool{}
	for _, a := range agents {
		missing[a] = true
	}
	inbox := t.conn.NC.NewInbox()
	sub, err := t.conn.NC.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask agents for their numbers: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := t.conn.NC.PublishRequest(subject, inbox, data); err != nil {
		return nil, fmt.Errorf("ask agents for their numbers: %w", err)
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil { // ctx is over, or no agent listens
			return found, nil
		}
		var a jobs.Telemetry
		if json.Unmarshal(m.Data, &a) != nil || a.Agent == "" {
			continue
		}
		a.Twins = 0
		if before, twice := found[a.Agent]; twice {
			a.Twins = before.Twins + 1
		}
		found[a.Agent] = a
		if delete(missing, a.Agent); len(missing) == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, twinPatience)
			defer cancel()
			missing[""] = true // not again
		}
	}
}

// twinPatience is how long Ask waits for a second process of a name. It answers the same question
// at the same time, so it is as quick as the first.
const twinPatience = 25 * time.Millisecond
