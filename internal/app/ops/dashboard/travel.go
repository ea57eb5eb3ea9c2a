package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
)

// Past answers questions about the past of swarms. *travel.Guide implements it. Its methods may be
// called from several goroutines.
type Past interface {
	// At returns the state of a shard at one moment or two. It ends with ctx.
	At(ctx context.Context, q travel.Question) (travel.View, error)
	// Entry returns an entry of the log of a shard, with the rows of a group unless that is below 0.
	Entry(ctx context.Context, swarmID string, shard int, entry uint64, group int) (travel.Entry, error)
}

// momentSlice is the time after which an answer has the progress of a replay in place of a state.
// momentPatience bounds the request, with the wait for other replays.
const (
	momentSlice    = 3 * time.Second
	momentPatience = 20 * time.Second
)

const maxMoments = 8

var errNoPast = fmt.Errorf("this dashboard does not replay logs: %w", jobs.ErrNotFound)

// errMoment ends a replay that takes longer than a request may.
var errMoment = fmt.Errorf("the replay does not get on: another one runs, or one entry takes very long: try again, or "+
	"use exoswarm swarm state: %w", context.DeadlineExceeded)

// moment answers with the state of a shard after an entry. The replay ends with the request: a
// browser that leaves the page costs nothing more.
func (s *Server) moment(w http.ResponseWriter, r *httpapi.Request) error {
	v, err := s.travel(r.Context(), r.Params)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}

func (s *Server) travel(ctx context.Context, p httpapi.Params) (v travel.View, err error) {
	swarm, err := shardOf(&s.o, p)
	if err != nil {
		return v, err
	}
	if s.o.Past == nil {
		return v, errNoPast
	}
	if !s.moments.Enter() {
		return v, fmt.Errorf("%d replays wait: try again: %w", maxMoments, jobs.ErrUnavailable)
	}
	defer s.moments.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, momentPatience, errMoment)
	defer cancel()
	entry, _ := strconv.ParseUint(p["entry"], 10, 64) // a checked parameter
	v, err = s.o.Past.At(ctx, travel.Question{
		Swarm: swarm.ID, Shard: p.Int("shard"), Entry: entry, And: uint64(p.Int("and")), Group: p.Int("group"),
		First: p.Int("first"), Agents: p.Int("agents"), Within: momentSlice,
	})
	return v, err
}
