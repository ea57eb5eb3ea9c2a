package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The views of the inside of GPU agents. An agent computes one when it is asked, and all browsers
// share it for a second.
var (
	heatRoute = route{
		method: http.MethodGet, path: "swarms/{name}/heat", name: "getHeat",
		summary: "A variable of the agents of a swarm, as cells of consecutive agents.",
		params: []param{
			swarmName,
			{name: "variable", in: "query", kind: "string", doc: "name of a variable; empty: the one that tells most"},
			{
				name: "value", in: "query", kind: "string", doc: "value of a cell", initial: "mean",
				values: []string{"mean", "least", "most"},
			},
			cellsParam,
		},
		answer: cluster.Heat{}, lasts: time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			swarm, err := swarmOf(o.Cluster, p["name"])
			if err != nil {
				return nil, err
			}
			return o.Cluster.Heat(ctx, swarm.ID, p["variable"], p["value"], p.num("size"))
		},
	}
	pagesRoute = route{
		method: http.MethodGet, path: "swarms/{name}/pages", name: "getPages",
		summary: "The tiers in which the pages of a swarm are.",
		params:  []param{swarmName, cellsParam}, answer: cluster.PageMaps{}, lasts: time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			swarm, err := swarmOf(o.Cluster, p["name"])
			if err != nil {
				return nil, err
			}
			return o.Cluster.PageMaps(ctx, swarm.ID, p.num("size"))
		},
	}
	timelineRoute = route{
		method: http.MethodGet, path: "agents/{name}/timeline", name: "getTimeline",
		summary: "The stages of the last batches of a GPU agent: the last 4,096.",
		params: []param{
			agentName,
			{
				name: "seconds", in: "query", kind: "integer", doc: "length of the past", initial: "10", least: 1,
				most: 600,
			},
			{
				name: "format", in: "query", kind: "string", initial: "json", values: []string{"json", "chrome"},
				doc: "chrome: the trace event format, which chrome://tracing and Perfetto open",
			},
		},
		answer: cluster.Timeline{}, lasts: time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			t, err := o.Cluster.Timeline(ctx, p["name"], p.num("seconds"))
			if err != nil || p["format"] == "json" {
				return t, err
			}
			return t.Trace(), nil
		},
	}
	computeRoute = route{
		method: http.MethodPost, path: "swarms/{name}/compute", name: "computeSwarm",
		summary: "Folds expressions over the agents of a swarm where they are; it changes nothing.",
		params:  []param{swarmName}, body: swarmclient.ComputeRequest{}, answer: swarmclient.ComputeAnswer{},
		serve: (*Server).compute,
	}
	cellsParam = param{
		name: "size", in: "query", kind: "integer", doc: "the view has at most size times size cells", initial: "256",
		least: 8, most: 512,
	}
)

// maxComputeBody is the most bytes of the body of computeRoute: a text whose characters are escaped.
const maxComputeBody = 2*swarms.MaxExpression + 1<<10

// errNoCompute refuses requests to a server without Options.Compute.
var errNoCompute = fmt.Errorf("this dashboard computes nothing: %w", jobs.ErrNotFound)

// compute answers with the results of the expression of a request. The answer is not shared: the
// agents have changed by the next one.
func (s *Server) compute(w http.ResponseWriter, r *http.Request) {
	if !isJSON(w, r) {
		return
	}
	var in swarmclient.ComputeRequest
	if !decodeBody(w, r, maxComputeBody, &in) {
		return
	}
	p, _, err := (&route{params: []param{swarmName}}).read(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actFor)
	defer cancel()
	swarm, err := swarmOf(s.o.Cluster, p["name"])
	if err == nil && s.o.Compute == nil {
		err = errNoCompute
	}
	var got *swarmclient.ComputeAnswer
	if err == nil {
		got, err = s.o.Compute(ctx, swarm.ID, in)
	}
	if err != nil {
		fail(w, statusOf(err), err.Error())
		return
	}
	writeJSON(w, got)
}
