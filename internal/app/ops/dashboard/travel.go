package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/jobs"
)

// Past answers questions about the past of swarms. It is a *travel.Guide. Its methods may be called
// from several goroutines.
type Past interface {
	// At returns the state of a shard at one moment or two. It ends with ctx.
	At(ctx context.Context, q travel.Question) (travel.View, error)
	// Entry returns an entry of the log of a shard, with the rows of a group unless that is below 0.
	Entry(ctx context.Context, swarmID string, shard int, entry uint64, group int) (travel.Entry, error)
}

// mostEntries is the largest number of an entry in a question. Browsers have no larger integers.
const mostEntries = 1<<53 - 1

// Parameters of these routes.
var (
	shardNumber = param{name: "shard", in: "path", kind: "integer", doc: "number of the shard", most: 1 << 20}
	entryNumber = param{
		name: "entry", in: "path", kind: "integer", doc: "number of an entry of the log of the shard", least: 1,
		most: mostEntries,
	}
	before = param{
		name: "before", in: "query", kind: "integer", doc: "number of the answer before which the others are; 0: the " +
			"newest",
		initial: "0", most: mostEntries,
	}
	groupChoice = param{
		name: "group", in: "query", kind: "integer", doc: "number of a group in the swarm; -1: the first one",
		initial: "-1", least: -1, most: 1 << 27,
	}
)

// momentSlice is the time after which an answer has the progress of a replay in place of a state.
// momentPatience bounds the request, with the wait for other replays.
const (
	momentSlice    = 3 * time.Second
	momentPatience = 20 * time.Second
)

// maxMoments is the largest number of requests that wait for a replay or run one.
const maxMoments = 8

// errNoPast refuses questions of a server without Options.Past.
var errNoPast = fmt.Errorf("this dashboard does not replay logs: %w", jobs.ErrNotFound)

// errMoment ends a replay that takes longer than a request may.
var errMoment = fmt.Errorf("the replay does not get on: another one runs, or one entry takes very long: try again, or "+
	"use exoswarm swarm state: %w", context.DeadlineExceeded)

var groupRoute = route{
	method: http.MethodGet, path: "swarms/{name}/shards/{shard}/groups/{group}/decisions", name: "listGroupDecisions",
	summary: "What a group has decided, newest first. An answer may have fewer elements than there are: next goes on.",
	params: []param{
		swarmName, shardNumber,
		{name: "group", in: "path", kind: "integer", doc: "number of a group in the swarm", most: 1 << 27},
		before, limit("20", 200),
	},
	answer: cluster.GroupDecisions{}, lasts: 2 * time.Second,
	ask: func(ctx context.Context, o *Options, p params) (any, error) {
		swarm, err := shardOf(o, p)
		if err != nil {
			return nil, err
		}
		return o.Cluster.GroupDecisions(ctx, swarm.ID, p.num("shard"), p.num("group"), uint64(p.num("before")),
			p.num("limit"))
	},
}

var entryRoute = route{
	method: http.MethodGet, path: "swarms/{name}/shards/{shard}/entries/{entry}", name: "getEntry",
	summary: "An entry of the log of a shard, with its first rows or those of a group.",
	params:  []param{swarmName, shardNumber, entryNumber, groupChoice}, answer: travel.Entry{},
	lasts: 10 * time.Second,
	ask: func(ctx context.Context, o *Options, p params) (any, error) {
		swarm, err := shardOf(o, p)
		if err != nil {
			return nil, err
		}
		if o.Past == nil {
			return nil, errNoPast
		}
		return o.Past.Entry(ctx, swarm.ID, p.num("shard"), uint64(p.num("entry")), p.num("group"))
	},
}

var momentParams = []param{
	swarmName, shardNumber, entryNumber, groupChoice,
	{
		name: "and", in: "query", kind: "integer", doc: "entry of a second moment; 0: there is none", initial: "0",
		most: mostEntries,
	},
	{name: "first", in: "query", kind: "integer", doc: "first agent of the group, from 0", initial: "0", most: 1 << 16},
	{
		name: "agents", in: "query", kind: "integer", doc: "number of agents of the group", initial: "50",
		most: travel.MaxAgents,
	},
}

var momentRoute = route{
	method: http.MethodGet, path: "swarms/{name}/shards/{shard}/at/{entry}", name: "getMoment",
	summary: "The state of a shard after an entry, by a replay of its log. An answer with progress has no state: " +
		"the same question goes on with the replay.",
	params: momentParams, answer: travel.View{}, serve: (*Server).moment,
}

// shardOf finds the swarm of a request. It refuses a shard that the swarm does not have.
func shardOf(o *Options, p params) (cluster.Swarm, error) {
	swarm, err := swarmOf(o.Cluster, p["name"])
	if err == nil && p.num("shard") >= max(1, len(swarm.Shards)) {
		err = fmt.Errorf("shard %s of swarm %q: %w", p["shard"], p["name"], jobs.ErrNotFound)
	}
	return swarm, err
}

// moment answers with the state of a shard after an entry. The replay ends with the request: a
// browser that leaves the page costs nothing more.
func (s *Server) moment(w http.ResponseWriter, r *http.Request) {
	p, _, err := (&route{params: momentParams}).read(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	v, err := s.travel(r.Context(), p)
	if err != nil {
		fail(w, statusOf(err), err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, v)
}

// travel asks for the state that a request is about.
func (s *Server) travel(ctx context.Context, p params) (v travel.View, err error) {
	swarm, err := shardOf(&s.o, p)
	if err != nil {
		return v, err
	}
	if s.o.Past == nil {
		return v, errNoPast
	}
	select {
	case s.moments <- struct{}{}:
		defer func() { <-s.moments }()
	default:
		return v, fmt.Errorf("%d replays wait: try again: %w", maxMoments, jobs.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, momentPatience, errMoment)
	defer cancel()
	entry, _ := strconv.ParseUint(p["entry"], 10, 64) // checked by read
	v, err = s.o.Past.At(ctx, travel.Question{
		Swarm: swarm.ID, Shard: p.num("shard"), Entry: entry, And: uint64(p.num("and")), Group: p.num("group"),
		First: p.num("first"), Agents: p.num("agents"), Within: momentSlice,
	})
	return v, err
}
