package dashboard

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/openai"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

const prefix = "/api/v1/"

// maxEntry is the largest number of an entry in a question. Browsers have no larger integers.
const maxEntry = 1<<53 - 1

// Parameters of routes. Names in paths are as the cluster has them, with any character; a browser
// escapes them.
var (
	jobID     = inPath("id", "id of a job")
	swarmName = inPath("name", "id of a swarm, or its name if no other one has it")
	agentName = inPath("name", "name of an agent")
	detector  = inPath("name", "name of a detector")
	shard     = httpapi.Param{Name: "shard", In: "path", Kind: "integer", Doc: "number of the shard", Max: 1 << 20}
	entry     = httpapi.Param{
		Name: "entry", In: "path", Kind: "integer", Doc: "number of an entry of the log of the shard", Min: 1,
		Max: maxEntry,
	}
	group = httpapi.Param{
		Name: "group", In: "path", Kind: "integer", Doc: "number of a group in the swarm", Max: 1 << 27,
	}

	numbered = httpapi.Param{
		Name: "agent", In: "path", Kind: "integer", Doc: "number of an agent in the swarm", Max: math.MaxUint32,
	}

	pool   = text("pool", "", "pool of agents; empty: all", "", string(jobs.PoolCPU), string(jobs.PoolGPU))
	before = integer("before", "number of the answer before which the others are; 0: the newest", 0, 0, maxEntry)
	choice = integer("group", "number of a group in the swarm; -1: the first one", -1, -1, 1<<27)
	cells  = integer("size", "the view has at most size times size cells", 256, 8, 512)
)

func inPath(name, doc string) httpapi.Param {
	return httpapi.Param{Name: name, In: "path", Kind: "string", Doc: doc}
}

// text is a text in a query, one of values if there are some.
func text(name, initial, doc string, values ...string) httpapi.Param {
	return httpapi.Param{Name: name, In: "query", Kind: "string", Doc: doc, Default: initial, Values: values}
}

func integer(name, doc string, initial, least, most int) httpapi.Param {
	return httpapi.Param{
		Name: name, In: "query", Kind: "integer", Doc: doc, Default: strconv.Itoa(initial), Min: least, Max: most,
	}
}

func limit(initial, most int) httpapi.Param {
	return integer("limit", "largest number of elements", initial, 1, most)
}

// shared serves a question whose answer all requests of the same parameters share for a time.
func (s *Server) shared(lasts time.Duration, ask question) func(http.ResponseWriter, *httpapi.Request) error {
	return func(w http.ResponseWriter, r *httpapi.Request) error { return s.ask(w, r, lasts, ask) }
}

// table returns the routes of every server, in the order of openapi.json; actions and programs have
// further tables. The routes of a nil server only describe themselves.
func (s *Server) table() []httpapi.Route {
	const get = http.MethodGet
	type params = []httpapi.Param
	return []httpapi.Route{
		{
			Method: get, Path: "state", Name: "getState", Summary: "The newest state of the cluster.",
			Answer: State{}, Serve: s.state,
		},
		{
			Method: get, Path: "events", Name: "streamEvents", Media: "text/event-stream", Answer: State{},
			Summary: "States of the cluster as server-sent events, at most one a second; a slow reader gets the " +
				"newest.",
			Serve: s.stream,
		},
		{
			Method: get, Path: "history", Name: "getHistory", Summary: "The past of series of numbers.",
			Params: params{
				text("names", "", "names of series, with commas between them; empty: all"),
				integer("seconds", "length of the past", 890, 10, 86400),
			},
			Answer: cluster.History{}, Serve: s.shared(time.Second, history),
		},
		{
			Method: get, Path: "jobs", Name: "listJobs", Summary: "Jobs of the queue.",
			Params: params{
				pool,
				{
					Name: "over", In: "query", Kind: "boolean", Default: "false",
					Doc: "the jobs of all pools that are over, newest first, instead of jobs that are not",
				},
				limit(200, 1000),
			},
			Answer: []cluster.JobView{}, Serve: s.shared(2*time.Second, listJobs),
		},
		{
			Method: get, Path: "jobs/{id}", Name: "getJob", Params: params{jobID}, Answer: cluster.JobView{},
			Summary: "One job, without the secrets of its specification.", Serve: s.shared(time.Second, getJob),
		},
		{
			Method: get, Path: "jobs/{id}/logs", Name: "getJobLogs", Summary: "Lines that a job has logged.",
			Params: params{jobID}, Answer: []jobs.LogLines{}, Serve: s.shared(2*time.Second, jobLogs),
		},
		{
			Method: get, Path: "jobs/{id}/explain", Name: "explainJob", Summary: "Why a job does not progress.",
			Params: params{jobID}, Answer: doctor.Reason{}, Serve: s.shared(3*time.Second, explainJob),
		},
		{
			Method: get, Path: "swarms", Name: "listSwarms", Summary: "All swarms, without specifications.",
			Answer: []cluster.Swarm{}, Serve: s.shared(time.Second/2, listSwarms),
		},
		{
			Method: get, Path: "swarms/{name}", Name: "getSwarm", Summary: "One swarm with its specification.",
			Params: params{swarmName}, Answer: cluster.Swarm{}, Serve: s.shared(time.Second/2, getSwarm),
		},
		{
			Method: get, Path: "swarms/{name}/explain", Name: "explainSwarm", Summary: "Why a swarm does not progress.",
			Params: params{swarmName}, Answer: doctor.Reason{},
			Serve: s.shared(3*time.Second, onSwarm(explainSwarm)),
		},
		{
			Method: get, Path: "swarms/{name}/decisions", Name: "listDecisions",
			Summary: "Answers of a shard, newest first.",
			Params:  params{swarmName, integer("shard", "number of the shard", 0, 0, 1<<20), before, limit(60, 200)},
			Answer:  []cluster.Decision{}, Serve: s.shared(2*time.Second, onSwarm(listDecisions)),
		},
		{
			Method: get, Path: "swarms/{name}/entities", Name: "findEntities",
			Summary: "The entities of a swarm with a key whose names have a text, or the nearest ones if none has it.",
			Params: params{
				swarmName, text("key", "", "part of the name of an entity, in any case; empty: all"), limit(20, 200),
			},
			Answer: entities.Page{}, Serve: s.shared(2*time.Second, onSwarm(findEntities)),
		},
		{
			Method: get, Path: "swarms/{name}/entities/{group}", Name: "getEntity",
			Summary: "The last rows of an entity: values with what was expected, votes and decisions.",
			Params:  params{swarmName, group}, Answer: cluster.EntityView{},
			Serve: s.shared(2*time.Second, onSwarm(getEntity)),
		},
		{
			Method: get, Path: "swarms/{name}/agents/{agent}", Name: "getObservedAgent",
			Summary: "The last observations of an agent that is addressed, newest first: values, the item that is " +
				"asked for and its score.",
			Params: params{swarmName, numbered, limit(100, 300)}, Answer: cluster.ObservedAgent{},
			Serve: s.shared(2*time.Second, onSwarm(getObserved)),
		},
		{
			Method: get, Path: "swarms/{name}/heat", Name: "getHeat",
			Summary: "A variable of the agents of a swarm, as cells of consecutive agents.",
			Params: params{
				swarmName, text("variable", "", "name of a variable; empty: the one that tells most"),
				text("value", "mean", "value of a cell", "mean", "least", "most"), cells,
			},
			Answer: cluster.Heat{}, Serve: s.shared(time.Second, onSwarm(heat)),
		},
		{
			Method: get, Path: "swarms/{name}/pages", Name: "getPages",
			Summary: "The tiers in which the pages of a swarm are.", Params: params{swarmName, cells},
			Answer: cluster.PageMaps{}, Serve: s.shared(time.Second, onSwarm(pageMaps)),
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/compute", Name: "computeSwarm",
			Summary: "Folds expressions over the agents of a swarm where they are; it changes nothing.",
			Params:  params{swarmName}, Body: swarmclient.ComputeRequest{}, Answer: swarmclient.ComputeAnswer{},
			Serve: s.compute,
		},
		{
			Method: get, Path: "detectors", Name: "listDetectors", Summary: "All detectors that last.",
			Answer: []detectors.View{}, Serve: s.shared(2*time.Second, listDetectors),
		},
		{
			Method: get, Path: "detectors/{name}", Name: "getDetector", Summary: "One detector.",
			Params: params{detector}, Answer: detectors.View{}, Serve: s.shared(time.Second, getDetector),
		},
		{
			Method: get, Path: "detectors/{name}/explain", Name: "explainDetector",
			Summary: "Why a detector does not progress.", Params: params{detector}, Answer: doctor.Reason{},
			Serve: s.shared(3*time.Second, explainDetector),
		},
		{
			Method: get, Path: "swarms/{name}/shards/{shard}/groups/{group}/decisions", Name: "listGroupDecisions",
			Summary: "What a group has decided, newest first. An answer may have fewer elements than there are: next " +
				"goes on.",
			Params: params{swarmName, shard, group, before, limit(20, 200)},
			Answer: cluster.GroupDecisions{}, Serve: s.shared(2*time.Second, onSwarm(groupDecisions)),
		},
		{
			Method: get, Path: "swarms/{name}/shards/{shard}/entries/{entry}", Name: "getEntry",
			Summary: "An entry of the log of a shard, with its first rows or the rows of a group.",
			Params:  params{swarmName, shard, entry, choice}, Answer: travel.Entry{},
			Serve: s.shared(10*time.Second, onSwarm(getEntry)),
		},
		{
			Method: get, Path: "swarms/{name}/shards/{shard}/at/{entry}", Name: "getMoment",
			Summary: "The state of a shard after an entry, by a replay of its log. An answer with progress has no " +
				"state: the same question goes on with the replay.",
			Params: params{
				swarmName, shard, entry, choice,
				integer("and", "entry of a second moment; 0: there is none", 0, 0, maxEntry),
				integer("first", "first agent of the group, from 0", 0, 0, 1<<16),
				integer("agents", "number of agents of the group", 50, 0, travel.MaxAgents),
			},
			Answer: travel.View{}, Serve: s.moment,
		},
		{
			Method: get, Path: "agents", Name: "listAgents", Summary: "All agents with their telemetry.",
			Answer: []cluster.Agent{}, Serve: s.shared(time.Second/2, listAgents),
		},
		{
			Method: get, Path: "agents/{name}", Name: "getAgent", Summary: "One agent.", Params: params{agentName},
			Answer: cluster.Agent{}, Serve: s.shared(time.Second/2, getAgent),
		},
		{
			Method: get, Path: "agents/{name}/timeline", Name: "getTimeline",
			Summary: "The stages of the last batches of a GPU agent: the last 4,096.",
			Params: params{
				agentName, integer("seconds", "length of the past", 10, 1, 600),
				text("format", "json", "chrome: the trace event format, which chrome://tracing and Perfetto open",
					"json", "chrome"),
			},
			Answer: cluster.Timeline{}, Serve: s.shared(time.Second, timeline),
		},
		{
			Method: get, Path: "tenants", Name: "listTenants", Summary: "Tenants with jobs or limits.",
			Answer: []cluster.Tenant{}, Serve: s.shared(time.Second/2, listTenants),
		},
		{
			Method: get, Path: "nats", Name: "getNATS", Summary: "The NATS servers and their streams.",
			Answer: telemetry.ServerReport{}, Serve: s.shared(time.Second/2, getNATS),
		},
		{
			Method: get, Path: "doctor", Name: "getDoctor", Summary: "The checks of the cluster.",
			Answer: []doctor.Result{}, Serve: s.shared(10*time.Second, checks),
		},
		{
			Method: get, Path: "dead", Name: "listDeadLetters", Params: params{pool, limit(100, 1000)},
			Summary: "Dead letters, oldest first, without their messages.", Answer: []jobs.DeadLetter{},
			Serve: s.shared(2*time.Second, listDead),
		},
		{
			Method: get, Path: "audit", Name: "listAudit", Summary: "What operators did, newest first.",
			Params: params{integer("seconds", "length of the past", 604800, 1, 90*86400), limit(200, 1000)},
			Answer: []control.AuditEntry{}, Serve: s.shared(2*time.Second, listAudit),
		},
		{
			Method: get, Path: "login", Name: "getLogin", Summary: "The login of the request.", Answer: Who{},
			Serve: s.who,
		},
		{
			Method: http.MethodPost, Path: "login", Name: "logIn", Summary: "Exchanges a token for a cookie.",
			Public: true, Body: Token{}, Serve: s.login,
		},
		{
			Method: http.MethodDelete, Path: "login", Name: "logOut", Summary: "Ends the login.", Public: true,
			Serve: s.logout,
		},
		{
			Method: get, Path: "openapi.json", Name: "getOpenAPI", Summary: "This description.",
			Answer: map[string]any{}, Public: true, Serve: s.describe,
		},
	}
}

// actionTable returns the routes that change the cluster. They exist with Options.Actions only, and
// mayAct admits their requests.
func (s *Server) actionTable() []httpapi.Route {
	return []httpapi.Route{
		{
			Method: http.MethodPost, Path: "actions/preview", Name: "previewAction",
			Summary: "What an action affects; it changes nothing. Only with --actions.",
			Body:    action.Request{}, Answer: ActionPreview{}, Serve: s.preview,
		},
		{
			Method: http.MethodPost, Path: "actions/confirm", Name: "confirmAction",
			Summary: "Does the action of a preview; 409 with a new preview if that has changed. Only with --actions.",
			Body:    ActionConfirm{}, Answer: action.Outcome{}, Serve: s.confirm,
		},
	}
}

// programTable returns the routes of programs, which exist with Options.Programs only. mayProgram
// admits their requests.
func programTable() []httpapi.Route { return (*programs.Server)(nil).Routes() }

// modelTable returns the routes of language models, which exist with Options.Models only.
func modelTable() []httpapi.Route { return (*openai.Server)(nil).Routes() }

// OpenAPI returns the description of the API. docs/openapi.json is a copy, which a test compares: a
// change of a type that clients read shows up there in review.
func OpenAPI() []byte {
	s := (*Server)(nil)
	return api.Describe(slices.Concat(s.table(), s.actionTable(), programTable(), modelTable()))
}

var api = httpapi.API{
	Title: "Exoswarm dashboard", Version: "1", Server: "/api/v1",
	Description: "Reads the state of a cluster, serves programs with exoswarm serve --programs, and models with " +
		"--models. " +
		"Fields may be added; none are removed or renamed within v1.",
	Security: map[string]any{
		"token": map[string]any{"type": "http", "scheme": "bearer"},
		"cookie": map[string]any{
			"type": "apiKey", "in": "cookie", "name": "exoswarm-PORT",
			"description": "set by POST /login; __Host-exoswarm-PORT under TLS",
		},
	},
	Names: map[string]string{
		"httpapi.Failure": "dashboard.Failure", "doctor.Reason": "explain.Reason",
		"detectors.View": "cluster.DetectorView", "feed.Keyless": "cpuagents.Keyless",
	},
}

func (s *Server) describe(w http.ResponseWriter, _ *httpapi.Request) error {
	w.Header().Set("Content-Type", httpapi.JSON)
	_, _ = w.Write(s.description)
	return nil
}

// routes returns the handler of the API and the pages. The login of each route that is not public
// is checked before anything of the request is read.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	add := func(routes []httpapi.Route, admit func(http.ResponseWriter, *http.Request) error) {
		for i := range routes {
			if routes[i].Admit = admit; routes[i].Public {
				routes[i].Admit = nil
			}
			if routes[i].Name == "getLogin" { // programs read the version of their routes there
				routes[i].Admit = s.hasLogin
			}
		}
		httpapi.Register(mux, prefix, routes, fail)
	}
	add(s.table(), s.mayLook)
	if s.o.Actions != nil {
		add(s.actionTable(), s.mayAct)
	} else {
		mux.HandleFunc(prefix+"actions/", absent("this dashboard only reads: start it with --actions and the login of "+
			"an operator"))
	}
	if s.o.Programs != nil {
		add(s.o.Programs.Routes(), s.mayProgram)
	} else {
		for _, t := range programTable() {
			mux.HandleFunc(t.Method+" "+prefix+t.Path, absent("this server has no routes for programs: start exoswarm "+
				"serve with --programs"))
		}
	}
	if s.o.Models != nil {
		all := s.o.Models.Routes()
		for i := range all {
			all[i].Admit = s.mayProgram
		}
		httpapi.Register(mux, "/v1/", all, openai.Fail)
		mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
			openai.Fail(w, r, httpapi.Errorf(http.StatusNotFound, "there is no such route: see /api/v1/openapi.json"))
		})
	} else {
		mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
			openai.Fail(w, r, httpapi.Errorf(http.StatusNotFound, "this server has no routes for language models: "+
				"start exoswarm serve with --models"))
		})
	}
	mux.HandleFunc("/api/", absent("there is no such route: see /api/v1/openapi.json"))
	site().register(mux)
	return mux
}

// absent answers requests for routes that the server does not have.
func absent(cure string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { httpapi.Errorf(http.StatusNotFound, "%s", cure).Write(w) }
}
