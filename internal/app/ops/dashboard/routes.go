package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// route is one operation of the API. The handlers and openapi.json are made from the table of
// routes, so that both agree. A route has ask, or serve, or neither (openapi.json itself).
//
// A route that changes the cluster has another method than GET, serve, and a check that the server
// may act; it must not have ask, whose answers are shared.
type route struct {
	// method is that of HTTP. path is below /api/v1/, with {id} or {name} for parameters.
	method, path string
	// name is the operationId of openapi.json: unique and stable, because clients are made from it.
	name    string
	summary string // one sentence
	params  []param
	// answer is a value of the type of the answer; nil: the answer has no body.
	answer any
	// acts marks routes that change the cluster. They exist with Options.Actions only, and need the
	// header of mayAct.
	acts bool
	// program marks routes of programs. They exist with Options.Programs only, and mayProgram checks
	// their login.
	program bool
	// public routes need no login.
	public bool
	// lasts is how long an answer of ask is shared.
	lasts time.Duration
	// ask computes the answer. It may run for several requests at once, and after they have ended.
	ask   func(ctx context.Context, o *Options, p params) (any, error)
	serve func(s *Server, w http.ResponseWriter, r *http.Request)
	media string // type of the answer of serve; empty: application/json
	body  any    // a value of the type of the request's body; nil: none
	takes string // type of the request's body, if that is not JSON
}

// param is a parameter of a route. A request with a value that does not fit it is refused with
// status 400; parameters that a route does not have are ignored.
type param struct {
	name, in, kind string // in: path or query; kind: string, integer or boolean
	doc            string
	initial        string // value of a query parameter that is absent
	least, most    int    // of an integer
	values         []string
}

// params are the checked parameters of a request, by name.
type params map[string]string

// num returns an integer parameter.
func (p params) num(name string) int {
	n, _ := strconv.Atoi(p[name]) // checked by read
	return n
}

// Parameters that several routes have. Names in paths are those of the cluster, with any character;
// a browser escapes them.
var (
	jobID     = param{name: "id", in: "path", kind: "string", doc: "id of a job"}
	swarmName = param{
		name: "name", in: "path", kind: "string", doc: "id of a swarm, or its name if no other one has it",
	}
	agentName = param{name: "name", in: "path", kind: "string", doc: "name of an agent"}
	pool      = param{
		name: "pool", in: "query", kind: "string", doc: "pool of agents; empty: all",
		values: []string{"", string(jobs.PoolCPU), string(jobs.PoolGPU)},
	}
)

// limit is the parameter with the number of elements of an answer.
func limit(initial string, most int) param {
	return param{
		name: "limit", in: "query", kind: "integer", doc: "largest number of elements", initial: initial, least: 1,
		most: most,
	}
}

// programsHeader has the version of the protocol in each answer to a program.
const programsHeader = "X-Exoswarm-Programs"

// programTable has the routes of programs, which exist with Options.Programs only. A token of programs
// is enough for them, and a cookie is not. programs.go fills it: the routes below do not depend on it.
var programTable []route

// table lists all operations of the API, in the order of openapi.json.
var table = []route{
	{
		method: http.MethodGet, path: "state", name: "getState", summary: "The newest state of the cluster.",
		answer: cluster.State{}, serve: (*Server).state,
	},
	{
		method: http.MethodGet, path: "events", name: "streamEvents", media: "text/event-stream",
		summary: "States of the cluster as server-sent events, at most one a second; a slow reader gets the newest.",
		answer:  cluster.State{}, serve: (*Server).stream,
	},
	{
		method: http.MethodGet, path: "history", name: "getHistory", summary: "The past of series of numbers.",
		params: []param{
			{name: "names", in: "query", kind: "string", doc: "names of series, with commas between them; empty: all"},
			{
				name: "seconds", in: "query", kind: "integer", doc: "length of the past", initial: "890", least: 10,
				most: 86400,
			},
		},
		answer: cluster.History{}, lasts: time.Second, ask: history,
	},
	{
		method: http.MethodGet, path: "jobs", name: "listJobs", summary: "Jobs of the queue.",
		params: []param{
			pool,
			{
				name:    "over",
				in:      "query",
				kind:    "boolean",
				doc:     "the jobs of all pools that are over, newest first, instead of those that are not",
				initial: "false",
			},
			limit("200", 1000),
		},
		answer: []cluster.JobView{}, lasts: 2 * time.Second, ask: listJobs,
	},
	{
		method: http.MethodGet, path: "jobs/{id}", name: "getJob", summary: "One job, without the secrets of its " +
			"specification.",
		params: []param{jobID}, answer: cluster.JobView{}, lasts: time.Second, ask: getJob,
	},
	{
		method: http.MethodGet, path: "jobs/{id}/logs", name: "getJobLogs", summary: "Lines that a job has logged.",
		params: []param{jobID}, answer: []jobs.LogLines{}, lasts: 2 * time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			lines, err := o.Cluster.JobLogs(ctx, p["id"])
			return list(lines), err
		},
	},
	{
		method: http.MethodGet, path: "jobs/{id}/explain", name: "explainJob",
		summary: "Why a job does not progress.", params: []param{jobID}, answer: explain.Reason{},
		lasts: 3 * time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			return o.Cluster.ExplainJob(ctx, p["id"])
		},
	},
	{
		method: http.MethodGet, path: "swarms", name: "listSwarms", summary: "All swarms, without specifications.",
		answer: []cluster.Swarm{}, lasts: time.Second / 2, ask: listSwarms,
	},
	{
		method: http.MethodGet, path: "swarms/{name}", name: "getSwarm", summary: "One swarm with its specification.",
		params: []param{swarmName}, answer: cluster.Swarm{}, lasts: time.Second / 2, ask: getSwarm,
	},
	{
		method: http.MethodGet, path: "swarms/{name}/explain", name: "explainSwarm",
		summary: "Why a swarm does not progress.", params: []param{swarmName}, answer: explain.Reason{},
		lasts: 3 * time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			swarm, err := swarmOf(o.Cluster, p["name"])
			if err != nil {
				return nil, err
			}
			return o.Cluster.ExplainSwarm(ctx, swarm.ID)
		},
	},
	{
		method: http.MethodGet, path: "swarms/{name}/decisions", name: "listDecisions",
		summary: "Answers of a shard, newest first.",
		params: []param{
			swarmName,
			{name: "shard", in: "query", kind: "integer", doc: "number of the shard", initial: "0", most: 1 << 20},
			before, limit("60", 200),
		},
		answer: []cluster.Decision{}, lasts: 2 * time.Second, ask: listDecisions,
	},
	{
		method: http.MethodGet, path: "swarms/{name}/entities", name: "findEntities",
		summary: "The entities of a swarm with a key whose names have a text, or the nearest ones if none has it.",
		params: []param{
			swarmName,
			{name: "key", in: "query", kind: "string", doc: "part of the name of an entity, in any case; empty: all"},
			limit("20", 200),
		},
		answer: entities.Page{}, lasts: 2 * time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			swarm, err := swarmOf(o.Cluster, p["name"])
			if err != nil {
				return nil, err
			}
			return o.Cluster.Entities(ctx, swarm.ID, p["key"], p.num("limit"))
		},
	},
	heatRoute, pagesRoute, computeRoute, // views.go
	detectorsRoute, detectorRoute, explainDetectorRoute, // detectors.go
	groupRoute, entryRoute, momentRoute, // travel.go
	{
		method: http.MethodGet, path: "agents", name: "listAgents", summary: "All agents with their telemetry.",
		answer: []cluster.Agent{}, lasts: time.Second / 2,
		ask: func(_ context.Context, o *Options, _ params) (any, error) { return list(o.Cluster.State().Agents), nil },
	},
	{
		method: http.MethodGet, path: "agents/{name}", name: "getAgent", summary: "One agent.",
		params: []param{agentName}, answer: cluster.Agent{}, lasts: time.Second / 2, ask: getAgent,
	},
	timelineRoute,
	{
		method: http.MethodGet, path: "tenants", name: "listTenants", summary: "Tenants with jobs or limits.",
		answer: []cluster.Tenant{}, lasts: time.Second / 2,
		ask: func(_ context.Context, o *Options, _ params) (any, error) {
			return list(o.Cluster.State().Tenants), nil
		},
	},
	{
		method: http.MethodGet, path: "nats", name: "getNATS", summary: "The NATS servers and their streams.",
		answer: telemetry.ServerReport{}, lasts: time.Second / 2,
		ask: func(_ context.Context, o *Options, _ params) (any, error) { return o.Cluster.State().NATS, nil },
	},
	{
		method: http.MethodGet, path: "doctor", name: "getDoctor", summary: "The checks of the cluster.",
		answer: []doctor.Result{}, lasts: 10 * time.Second,
		ask: checks,
	},
	{
		method: http.MethodGet, path: "dead", name: "listDeadLetters", summary: "Dead letters, oldest first, without " +
			"their messages.",
		params: []param{pool, limit("100", 1000)}, answer: []jobs.DeadLetter{}, lasts: 2 * time.Second, ask: listDead,
	},
	{
		method: http.MethodGet, path: "login", name: "getLogin", summary: "The login of the request.",
		answer: Who{}, serve: (*Server).who,
	},
	{
		method: http.MethodPost, path: "login", name: "logIn", summary: "Exchanges a token for a cookie.",
		public: true, body: Token{}, serve: (*Server).login,
	},
	{
		method: http.MethodDelete, path: "login", name: "logOut", summary: "Ends the login.", public: true,
		serve: (*Server).logout,
	},
	{
		method: http.MethodGet, path: "openapi.json", name: "getOpenAPI", summary: "This description.",
		answer: map[string]any{},
		public: true,
	},
}

// routes returns the handler of the API and the pages. It checks the login of each route that is
// not public, before anything of the request is read.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	description := OpenAPI()
	for _, t := range slices.Concat(table, actionTable, programTable) {
		if t.acts && s.o.Actions == nil {
			continue
		}
		if t.program && s.o.Programs == nil {
			mux.HandleFunc(t.method+" /api/v1/"+t.path, noPrograms)
			continue
		}
		serve := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(description)
		}
		switch {
		case t.serve != nil:
			serve = func(w http.ResponseWriter, r *http.Request) { t.serve(s, w, r) }
		case t.ask != nil:
			serve = func(w http.ResponseWriter, r *http.Request) { s.ask(t, w, r) }
		}
		mux.HandleFunc(t.method+" /api/v1/"+t.path, func(w http.ResponseWriter, r *http.Request) {
			if t.program {
				w.Header().Set(programsHeader, strconv.Itoa(programs.Version))
				if s.mayProgram(w, r) {
					serve(w, r)
				}
				return
			}
			if !t.public {
				if s.isProgram(r) && t.name != "getLogin" {
					fail(
						w,
						http.StatusForbidden,
						"the token of programs is for the routes of programs: use a login of the "+
							"dashboard",
					)
					return
				}
				if _, ok := s.user(r); !ok {
					fail(w, http.StatusUnauthorized, "log in first: open the address that the program printed")
					return
				}
			}
			if t.acts && !s.mayAct(w, r) {
				return
			}
			serve(w, r)
		})
	}
	if s.o.Actions == nil {
		mux.HandleFunc("/api/v1/actions/", readOnly)
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "there is no such route: see /api/v1/openapi.json")
	})
	site().register(mux)
	return mux
}

// ask answers a request by the route's question to the cluster, or by the answer that another
// request got within the lifetime of the route.
func (s *Server) ask(t route, w http.ResponseWriter, r *http.Request) {
	p, key, err := t.read(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	got, err := s.answers.get(r.Context(), key, t.lasts, func(ctx context.Context) (any, error) {
		return t.ask(ctx, &s.o, p)
	})
	if err != nil {
		fail(w, http.StatusServiceUnavailable, "too many questions at a time: try again")
		return
	}
	got.write(w, r)
}

// read returns the parameters of a request and the key under which its answer is shared. Requests
// have the same key when all their parameters are the same, given or by default.
func (t *route) read(r *http.Request) (params, string, error) {
	p := params{}
	key := t.name
	query := r.URL.Query()
	for _, q := range t.params {
		v := r.PathValue(q.name)
		if q.in == "query" {
			if v = query.Get(q.name); v == "" {
				v = q.initial
			}
		}
		if len(v) > 256 {
			return nil, "", fmt.Errorf("%s is longer than 256 bytes", q.name)
		}
		switch q.kind {
		case "integer":
			if n, err := strconv.Atoi(v); err != nil || n < q.least || n > q.most {
				return nil, "", fmt.Errorf("%s=%q: use %d to %d", q.name, v, q.least, q.most)
			}
		case "boolean":
			if v != "true" && v != "false" {
				return nil, "", fmt.Errorf("%s=%q: use true or false", q.name, v)
			}
		default:
			if q.values != nil && !slices.Contains(q.values, v) {
				return nil, "", fmt.Errorf("%s=%q: use one of %q", q.name, v, q.values)
			}
		}
		p[q.name] = v
		key += "?" + url.QueryEscape(v)
	}
	return p, key, nil
}

// state answers with the newest state, from the bytes that the streams send too.
func (s *Server) state(w http.ResponseWriter, r *http.Request) {
	f, err := s.events.current()
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `"`+strconv.FormatUint(f.state.Frame, 10)+`"`)
	_, _ = w.Write(f.body)
}

// who answers with the login of a request.
func (s *Server) who(w http.ResponseWriter, r *http.Request) {
	name, _ := s.user(r)
	who := Who{User: name, Version: s.o.Version, Started: s.started, Actions: s.o.Actions != nil}
	if s.o.Programs != nil {
		who.Programs = programs.Version
	}
	if who.Actions {
		who.ActionToken = s.actionToken(r)
	}
	writeJSON(w, who)
}

// list returns s, or an empty slice for nil, so that its JSON is an array.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// history answers with the series of some names, or of all that the newest state has. The past is a
// length and not a time, so that all browsers share an answer.
func history(_ context.Context, o *Options, p params) (any, error) {
	var names []string
	for name := range strings.SplitSeq(p["names"], ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		for name := range o.Cluster.State().Numbers {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return o.Cluster.History(names, time.Now().Add(-time.Duration(p.num("seconds"))*time.Second)), nil
}

// listJobs answers with the jobs of one pool or of both. Specifications and outputs are left out:
// they may be large, and the page of a job has them.
func listJobs(ctx context.Context, o *Options, p params) (any, error) {
	pools := []string{p["pool"]}
	if p["pool"] == "" && p["over"] != "true" {
		pools = []string{string(jobs.PoolCPU), string(jobs.PoolGPU)}
	}
	short := []cluster.JobView{}
	for _, pool := range pools {
		all, err := o.Cluster.Jobs(ctx, pool, p["over"] == "true", p.num("limit")-len(short))
		if err != nil {
			return nil, err
		}
		short = append(short, all...)
	}
	for i := range short {
		short[i] = withoutSecrets(short[i])
		if short[i].Job != nil {
			short[i].Job.Spec = nil
		}
		if short[i].Result != nil {
			short[i].Result.Output = nil
		}
	}
	return short, nil
}

// checks asks the doctor. Without one it examines the newest state alone.
func checks(ctx context.Context, o *Options, _ params) (any, error) {
	if o.Doctor == nil {
		return doctor.Examine(&doctor.Facts{At: time.Now(), State: o.Cluster.State(), Version: o.Version}), nil
	}
	all, err := o.Doctor(ctx)
	return list(all), err
}

// getJob answers with one job.
func getJob(ctx context.Context, o *Options, p params) (any, error) {
	j, err := o.Cluster.Job(ctx, p["id"])
	return withoutSecrets(j), err
}

// listDead answers with dead letters, without their messages.
func listDead(ctx context.Context, o *Options, p params) (any, error) {
	all, err := o.Cluster.Dead(ctx, p["pool"], p.num("limit"))
	short := slices.Clone(list(all))
	for i := range short {
		short[i].Data = nil // a message with a specification
	}
	return short, err
}

// listSwarms answers with the swarms of the newest state, without their specifications.
func listSwarms(_ context.Context, o *Options, _ params) (any, error) {
	all := slices.Clone(list(o.Cluster.State().Swarms))
	for i := range all {
		all[i].Spec = nil
	}
	return all, nil
}

// getSwarm answers with one swarm and its specification.
func getSwarm(_ context.Context, o *Options, p params) (any, error) {
	swarm, err := swarmOf(o.Cluster, p["name"])
	swarm.Spec = hideSecrets(swarm.Spec)
	return swarm, err
}

// getAgent answers with one agent of the newest state.
func getAgent(_ context.Context, o *Options, p params) (any, error) {
	for _, a := range o.Cluster.State().Agents {
		if a.Name == p["name"] {
			return a, nil
		}
	}
	return nil, fmt.Errorf("agent %q: %w", p["name"], jobs.ErrNotFound)
}

// listDecisions answers with the newest answers of a shard. It refuses a shard that the swarm does
// not have before it asks the cluster.
func listDecisions(ctx context.Context, o *Options, p params) (any, error) {
	swarm, err := swarmOf(o.Cluster, p["name"])
	if err != nil {
		return nil, err
	}
	if shard := p.num("shard"); shard >= max(1, len(swarm.Shards)) {
		return nil, fmt.Errorf("shard %d of swarm %q: %w", shard, p["name"], jobs.ErrNotFound)
	}
	all, err := o.Cluster.Decisions(ctx, swarm.ID, p.num("shard"), uint64(p.num("before")), p.num("limit"))
	return list(all), err
}

// swarmOf finds a swarm by its id, else by its name: the swarms of several runs of one
// specification have the same name.
func swarmOf(c Cluster, name string) (cluster.Swarm, error) {
	all := c.State().Swarms
	for _, s := range all {
		if s.ID == name {
			return s, nil
		}
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return cluster.Swarm{}, fmt.Errorf("swarm %q: %w", name, jobs.ErrNotFound)
}

// noPrograms answers requests of programs to a server that has no routes for them.
func noPrograms(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "this server has no routes for programs: start exoswarm serve with --programs")
}
