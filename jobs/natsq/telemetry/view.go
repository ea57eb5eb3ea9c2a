package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// viewPrefix begins the subjects on which GPU agents show pictures of their shards; the name of the
// agent follows, as in the registry. Viewers may publish there: a view changes nothing.
const viewPrefix = "exo.agent.view."

// What a view shows.
const (
	ViewPicture  = "picture"  // a variable of the agents of a shard: Picture
	ViewPages    = "pages"    // where the pages of a shard are: PageMap
	ViewTimeline = "timeline" // the stages of the last batches: Timeline
	ViewModels   = "models"   // the language models that the agent holds: Models
)

// States of a cell of a picture: whether its agents are on the device.
const (
	CellWhole   = iota // all of them
	CellPartly         // some, and the value is over these
	CellKept           // none: the value is from an earlier picture
	CellNowhere        // none, and no earlier picture has a value
	CellNone           // no unit has a value
)

// MaxCells is the largest number of cells of a view.
const MaxCells = 512 * 512

// View is a question to an agent.
type View struct {
	Version int    `json:"v"`
	What    string `json:"what"`
	// Swarm is the key of a swarm, and Shard the number of one of its shards.
	Swarm string `json:"swarm,omitempty"`
	Shard int    `json:"shard,omitempty"`
	// Variable is what a picture shows, and Value how it combines the units of a cell: mean, least
	// or most.
	Variable string `json:"variable,omitempty"`
	Value    string `json:"value,omitempty"`
	// Cells is the largest number of cells of a picture or a map.
	Cells int `json:"cells,omitempty"`
	// Seconds is the length of a timeline.
	Seconds int `json:"seconds,omitempty"`
}

// Picture is a variable of the agents of a shard as cells.
type Picture struct {
	Variable string `json:"variable"`
	// Variables can be drawn.
	Variables []string `json:"variables"`
	// Units is the number of agents, or of groups for a variable of groups; Each is how many agents a
	// unit has. Cell i has the units from i*Per on.
	Units int `json:"units"`
	Each  int `json:"each"`
	Per   int `json:"per"`
	// Columns is the width of pictures whose cells are in rows, and not consecutive units.
	Columns int `json:"columns,omitempty"`
	// Tick is the number of the tick that the last column of a picture over ticks shows, from 1 on.
	Tick int64 `json:"tick,omitempty"`
	// Least and Most are the range of the cells with a value. A cell is Least + (Most-Least) *
	// number/65535.
	Least float32 `json:"least"`
	Most  float32 `json:"most"`
	// Cells has two bytes for each cell, the low one first, and States one: CellWhole and so on.
	Cells  []byte    `json:"cells"`
	States []byte    `json:"states"`
	At     time.Time `json:"at"`
	Took   int64     `json:"took_ns"` // of the shard
}

// PageMap says where the pages of a shard are.
type PageMap struct {
	Pages     int      `json:"pages"`
	Per       int      `json:"per"` // pages a cell
	PageBytes int      `json:"page_bytes"`
	Tiers     []string `json:"tiers"`  // the fastest first
	Counts    []int    `json:"counts"` // of pages, by tier
	// Runs are runs of equal cells: how many, the index of the tier or -1 for pages that were never
	// addressed, and the seconds since the last access as a power of two, or -1 if not known.
	Runs [][3]int  `json:"runs"`
	At   time.Time `json:"at"`
	// Memory and Moves count since the shard was opened. Older agents do not tell them.
	Memory []PageMemory `json:"memory,omitempty"`
	Moves  []PageMove   `json:"moves,omitempty"`
}

// PageMemory counts accesses to the pages of a tier of memory. Pages that are held on the device
// for good are not counted.
type PageMemory struct {
	Tier   string `json:"tier"`
	Frames int    `json:"frames"`
	Free   int    `json:"free"`
	Hits   uint64 `json:"hits"` // accesses that found the page there
	Misses uint64 `json:"misses"`
	// Prefetched pages came before an access; Used and Wasted of them were accessed, or left before.
	Prefetched uint64 `json:"prefetched"`
	Used       uint64 `json:"used"`
	Wasted     uint64 `json:"wasted"`
}

// PageMove counts moves from one tier to another.
type PageMove struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	Pages  uint64 `json:"pages"`
}

// Timeline is the stages of the last batches of an agent.
type Timeline struct {
	Agent  string    `json:"agent"`
	At     time.Time `json:"at"`
	Stages []string  `json:"stages"` // their names, in the order in which a batch passes them
	Spans  []Span    `json:"spans"`  // in the order in which they ended
}

// Span is one stage of one batch of entries of a shard.
type Span struct {
	Stage int    `json:"stage"` // index of Timeline.Stages
	Swarm string `json:"swarm"` // key
	Shard int    `json:"shard"`
	First uint64 `json:"first"` // entry
	Last  uint64 `json:"last"`
	Bytes int64  `json:"bytes"`
	// Begin is in nanoseconds since 1970, by the clock of the agent.
	Begin int64 `json:"begin_ns"`
	Took  int64 `json:"took_ns"`
}

const (
	// maxViews is how many views an agent makes at a time; others are refused.
	maxViews = 4
	// viewPatience bounds a view: a shard may be in a batch, and pauses between two views.
	viewPatience = 5 * time.Second
	// maxView bounds an unpacked answer.
	maxView = 16 << 20
)

// AnswerView answers views in the name of an agent until stop is called, which waits for views in
// progress. view makes one, for at most the time of its context; several are made at a time. A
// *jobs.Error, jobs.ErrNotFound and jobs.ErrUnavailable of it reach the asker.
func (t *Telemetry) AnswerView(agent string, view func(ctx context.Context, v View) (any, error)) (stop func(),
	err error,
) {
	return answer(t, viewPrefix, agent, viewPatience, view)
}

// answer answers questions to an agent on the subject of a prefix, as AnswerView does.
func answer[Q any](
	t *Telemetry, prefix, agent string, patience time.Duration, of func(ctx context.Context, q Q) (any, error),
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	limit := int(t.conn.NC.MaxPayload()) - headroom
	var making sync.WaitGroup
	free := make(chan struct{}, maxViews)
	sub, err := t.conn.NC.Subscribe(prefix+AgentKey(agent), func(m *nats.Msg) {
		var q Q
		if json.Unmarshal(m.Data, &q) != nil || m.Reply == "" {
			return
		}
		select {
		case free <- struct{}{}:
		default:
			refuse(m, ErrBusy)
			return
		}
		making.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			got, err := of(ctx, q)
			data, err := pack(got, err, limit)
			if err != nil {
				refuse(m, err)
				return
			}
			r := nats.NewMsg(m.Reply)
			r.Data = data
			_ = m.RespondMsg(r) // a lost answer is asked for again
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("answer questions to agent %s: %w", agent, err)
	}
	t.settle()
	return func() {
		_ = sub.Unsubscribe()
		cancel()
		making.Wait()
	}, nil
}

// pack returns an answer as compressed JSON of at most limit bytes.
func pack(got any, failed error, limit int) ([]byte, error) {
	if failed != nil {
		return nil, failed
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // a constant level
	if err := errors.Join(json.NewEncoder(z).Encode(got), z.Close()); err != nil {
		return nil, err
	}
	if b.Len() > limit {
		return nil, jobs.Errorf(jobs.CodeInvalid, "an answer of %d bytes, and a message takes %d: ask for less",
			b.Len(), limit)
	}
	return b.Bytes(), nil
}

// headerCode has the class of a refusal: a jobs.Code, or one of these.
const (
	headerCode      = "Exo-Code"
	codeNotFound    = "not_found"
	codeUnavailable = "unavailable"
)

func refuse(m *nats.Msg, why error) {
	code := string(jobs.AsError(why).Code)
	switch {
	case errors.Is(why, jobs.ErrNotFound):
		code = codeNotFound
	case errors.Is(why, jobs.ErrUnavailable), errors.Is(why, ErrBusy), errors.Is(why, context.DeadlineExceeded):
		code = codeUnavailable
	}
	r := nats.NewMsg(m.Reply)
	r.Header.Set(headerError, strings.ReplaceAll(why.Error(), "\n", " "))
	r.Header.Set(headerCode, code)
	_ = m.RespondMsg(r)
}

// Listens reports whether a connection takes views of a GPU agent, which the server knows however
// busy the agent is. Without an answer of the server it reports true.
func (t *Telemetry) Listens(ctx context.Context, agent string) bool {
	// The body is no view, so the agent has nothing to do.
	_, err := t.conn.NC.RequestWithContext(ctx, viewPrefix+AgentKey(agent), nil)
	return !errors.Is(err, nats.ErrNoResponders)
}

// AskView asks an agent for a view, and decodes the answer into to. jobs.ErrNotFound where no agent
// of the name answers, or it does not serve the shard; jobs.ErrUnavailable where it has no time; a
// *jobs.Error of CodeInvalid for a question that it does not understand.
func (t *Telemetry) AskView(ctx context.Context, agent string, v View, to any) error {
	v.Version = jobs.Version
	return t.ask(ctx, fmt.Sprintf("ask agent %s for a view: %s", agent, v.What), viewPrefix+AgentKey(agent),
		2*viewPatience, v, to)
}

// ask asks a question that answer answers. what begins errors.
func (t *Telemetry) ask(ctx context.Context, what, subject string, patience time.Duration, question, to any) error {
	data, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request := &nats.Msg{Subject: subject, Data: data}
	m, err := t.conn.NC.RequestMsgWithContext(ctx, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s: nobody answers: %w", what, jobs.ErrNotFound)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	if failure := m.Header.Get(headerError); failure != "" {
		switch code := m.Header.Get(headerCode); code {
		case codeNotFound:
			return fmt.Errorf("%s: %s: %w", what, failure, jobs.ErrNotFound)
		case codeUnavailable:
			return fmt.Errorf("%s: %s: %w", what, failure, jobs.ErrUnavailable)
		default:
			return jobs.Errorf(jobs.Code(code), "%s: %s", what, failure)
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(m.Data))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(z, maxView)).Decode(to)
	}
	if err != nil {
		return fmt.Errorf("%s: its answer: %w", what, err)
	}
	return nil
}
