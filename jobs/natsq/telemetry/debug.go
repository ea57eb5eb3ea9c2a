package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// debugPrefix begins the subjects on which agents hand out what a bundle holds; the name of the
// agent follows, as in the registry. Operators alone may publish there.
const debugPrefix = "exo.agent.debug."

type debugRequest struct {
	Version int    `json:"v"`
	What    string `json:"what"`
	Seconds int    `json:"seconds,omitempty"` // of a profile
	// Token comes from the answer to the first request, and Offset is where the next part begins.
	// If they are empty and 0, the agent makes the document.
	Token  string `json:"token,omitempty"`
	Offset int    `json:"offset,omitempty"`
}

// Headers of an answer.
const (
	headerToken = "Exo-Token"
	headerTotal = "Exo-Total"
	headerError = "Exo-Error"
)

const (
	// chunk is the size of a part: far below the largest message, so that others are not held up.
	chunk = 512 << 10
	// MaxDocument bounds a document of an agent; the rest is left out.
	MaxDocument = 16 << 20
	// documentKept is how long an agent keeps a document for the parts that follow.
	documentKept = time.Minute
	// partPatience bounds the wait for a part of a document that is made.
	partPatience = 10 * time.Second
)

// Documents of an agent. Profiles are in the format of pprof.
const (
	CPU        = "cpu"        // a profile of the given seconds
	Heap       = "heap"       // a profile
	Goroutines = "goroutines" // stacks as text
	Metrics    = "metrics"    // all of them, in the text format of Prometheus
	Log        = "log"        // the last lines, JSON
	Process    = "process"    // version, flags that hold no secret, machine: JSON
)

// ErrBusy is the answer of an agent that makes a document for another request.
var ErrBusy = errors.New("the agent makes a document for somebody else")

// AnswerDebug hands out documents of an agent until stop is called, which waits for one that is
// being made. document makes one, for at most the time of its context; one is made at a time.
func (t *Telemetry) AnswerDebug(agent string, document func(ctx context.Context, what string, seconds int) ([]byte,
	error),
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	d := &documents{of: document}
	sub, err := t.conn.NC.Subscribe(debugPrefix+AgentKey(agent), func(m *nats.Msg) { d.answer(ctx, m) })
	if err != nil {
		cancel()
		return nil, fmt.Errorf("hand out documents of agent %s: %w", agent, err)
	}
	t.settle()
	return func() {
		_ = sub.Unsubscribe()
		cancel()
		d.making.Wait()
	}, nil
}

// documents keeps the document that was made last.
type documents struct {
	of     func(ctx context.Context, what string, seconds int) ([]byte, error)
	making sync.WaitGroup

	mu    sync.Mutex
	busy  bool
	token string
	data  []byte
	until time.Time
}

// answer answers a request: with the first part of a new document, or with the part of the last one
// that the request names. ctx ends with the answers of the agent.
func (d *documents) answer(ctx context.Context, m *nats.Msg) {
	var q debugRequest
	if err := json.Unmarshal(m.Data, &q); err != nil || m.Reply == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Token != "" {
		if q.Token != d.token || time.Now().After(d.until) || q.Offset < 0 || q.Offset > len(d.data) {
			respond(m, nil, "", 0, "the document is not kept any more: ask again")
			return
		}
		d.until = time.Now().Add(documentKept)
		respond(m, d.data[q.Offset:min(q.Offset+chunk, len(d.data))], d.token, len(d.data), "")
		return
	}
	if d.busy {
		respond(m, nil, "", 0, ErrBusy.Error())
		return
	}
	d.busy, d.data, d.token = true, nil, ""
	d.making.Go(func() { d.make(ctx, m, q) })
}

// make makes a document and answers with its first part. It does not hold up other requests.
func (d *documents) make(ctx context.Context, m *nats.Msg, q debugRequest) {
	seconds := min(max(q.Seconds, 0), 60)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+partPatience)
	defer cancel()
	data, err := d.of(ctx, q.What, seconds)
	if len(data) > MaxDocument {
		data = data[:MaxDocument]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if err != nil {
		respond(m, nil, "", 0, err.Error())
		return
	}
	d.token, d.data, d.until = natsconn.NewID(), data, time.Now().Add(documentKept)
	respond(m, data[:min(chunk, len(data))], d.token, len(data), "")
}

func respond(m *nats.Msg, data []byte, token string, total int, failure string) {
	r := nats.NewMsg(m.Reply)
	r.Data = data
	if failure != "" {
		r.Header.Set(headerError, strings.ReplaceAll(failure, "\n", " "))
	} else {
		r.Header.Set(headerToken, token)
		r.Header.Set(headerTotal, strconv.Itoa(total))
	}
	_ = m.RespondMsg(r) // the asker waits, and says so
}

// Document returns a document of an agent, at most MaxDocument bytes. seconds is the length of a
// profile. ErrBusy where the agent makes another one; jobs.ErrNotFound where no agent of the name
// answers.
func (t *Telemetry) Document(ctx context.Context, agent, what string, seconds int) ([]byte, error) {
	var all []byte
	q := debugRequest{Version: jobs.Version, What: what, Seconds: seconds}
	for {
		data, err := json.Marshal(q)
		if err != nil {
			return nil, fmt.Errorf("ask agent %s for its %s: %w", agent, what, err)
		}
		patience := partPatience
		if q.Token == "" {
			patience += time.Duration(seconds) * time.Second
		}
		try, cancel := context.WithTimeout(ctx, patience)
		request := &nats.Msg{Subject: debugPrefix + AgentKey(agent), Data: data}
		m, err := t.conn.NC.RequestMsgWithContext(try, request)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, fmt.Errorf("ask agent %s for its %s: nobody answers: %w", agent, what, jobs.ErrNotFound)
		case err != nil:
			return nil, fmt.Errorf("ask agent %s for its %s: %w", agent, what, err)
		}
		if failure := m.Header.Get(headerError); failure != "" {
			if failure == ErrBusy.Error() {
				return nil, fmt.Errorf("ask agent %s for its %s: %w", agent, what, ErrBusy)
			}
			return nil, fmt.Errorf("ask agent %s for its %s: it answers: %s", agent, what, failure)
		}
		all = append(all, m.Data...)
		total, err := strconv.Atoi(m.Header.Get(headerTotal))
		if err != nil || total > MaxDocument || len(all) > total {
			return nil, fmt.Errorf("ask agent %s for its %s: %d bytes of %q", agent, what, len(all),
				m.Header.Get(headerTotal))
		}
		if len(all) == total {
			return all, nil
		}
		if len(m.Data) == 0 {
			return nil, fmt.Errorf("ask agent %s for its %s: it ends at %d of %d bytes", agent, what, len(all), total)
		}
		q.Token, q.Offset = m.Header.Get(headerToken), len(all)
	}
}
