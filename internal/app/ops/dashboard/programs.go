package dashboard

import (
	"errors"
	"net/http"

	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// arraysDoc is the media type of arrays.
const arraysDoc = programs.MediaArrays

var (
	newSwarmName = param{name: "name", in: "path", kind: "string", doc: "id of a swarm"}
	workerID     = param{name: "worker", in: "path", kind: "string", doc: "id of a worker"}
	takenJob     = param{name: "job", in: "path", kind: "string", doc: "id of the job that the worker has"}
)

func init() {
	programTable = []route{
		{
			method: http.MethodPost, path: "swarms", name: "createSwarm", body: programs.NewSwarm{},
			answer: programs.MadeSwarm{}, summary: "Makes a swarm that lasts.",
		},
		{
			method: http.MethodDelete, path: "swarms/{name}", name: "deleteSwarm", params: []param{newSwarmName},
			summary: "Deletes a swarm with its logs and the state of its agents.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/rows", name: "feedRows", params: []param{newSwarmName},
			takes: arraysDoc, media: arraysDoc, answer: programs.FedRows{},
			summary: "Feeds rows of entities, and answers with their decisions in the order of the rows. Arrays, " +
				"text/csv or application/x-ndjson; the answer is NDJSON for a request that accepts it.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/observe", name: "observeAgents",
			params: []param{newSwarmName},
			takes:  arraysDoc, media: arraysDoc, answer: []byte{},
			summary: "Gives inputs to agents (arrays agent u4, features f4): their votes, and the decisions of their " +
				"groups.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/tick", name: "tickSwarm", params: []param{newSwarmName},
			body: programs.Ticks{}, answer: programs.TickedAll{}, summary: "Steps all agents.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/query", name: "querySwarm", params: []param{newSwarmName},
			body: programs.Queried{}, media: arraysDoc, answer: []byte{},
			summary: "The states of agents or groups, or knowledge nodes, as arrays.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/vote", name: "voteSwarm", params: []param{newSwarmName},
			body: swarms.Vote{}, answer: programs.VotedAll{}, summary: "Lets all agents decide together.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/fuse", name: "fuseSwarm", params: []param{newSwarmName},
			body: swarms.Fuse{}, media: arraysDoc, answer: []byte{},
			summary: "The knowledge nodes of a swarm as arrays: node u4, count u8, mean f4.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/learn", name: "teachSwarm", params: []param{newSwarmName},
			body: programs.Lessons{}, answer: programs.LearnedAll{},
			summary: "Merges values into knowledge nodes, which agents hear in the next tick.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/reset", name: "resetSwarm", params: []param{newSwarmName},
			summary: "Returns all agents to their initial state.",
		},
		{
			method: http.MethodPost, path: "swarms/{name}/snapshots", name: "snapshotSwarm",
			params: []param{newSwarmName},
			body:   programs.NewSnapshot{}, answer: programs.MadeSnapshot{}, summary: "Stores the state of all agents.",
		},
		{
			method: http.MethodGet, path: "snapshots/{snapshot}", name: "readSnapshot",
			media: arraysDoc, answer: []byte{},
			params:  []param{{name: "snapshot", in: "path", kind: "string", doc: "name of a snapshot, or of its part"}},
			summary: "The arrays of a snapshot, with its manifest.",
		},
		{
			method: http.MethodPost, path: "workers", name: "beginWork", body: programs.NewWorker{},
			answer: programs.Worker{}, summary: "Makes a worker that takes jobs of its kinds, one at a time.",
		},
		{
			method: http.MethodPost, path: "workers/{worker}/take", name: "takeJob", params: []param{workerID},
			body: programs.Wait{}, answer: programs.TakenJob{},
			summary: "Waits for a job; status 204 if there is none.",
		},
		{
			method: http.MethodPost, path: "workers/{worker}/jobs/{job}", name: "extendJob",
			params: []param{workerID, takenJob}, body: programs.JobProgress{}, answer: programs.JobGoesOn{},
			summary: "Says that a job goes on, with its progress. The answer says whether it shall.",
		},
		{
			method: http.MethodPost, path: "workers/{worker}/jobs/{job}/end", name: "endJob",
			params: []param{workerID, takenJob}, body: programs.JobEnd{}, answer: programs.JobGoesOn{},
			summary: "Ends a job with an output or an error.",
		},
		{
			method: http.MethodDelete, path: "workers/{worker}", name: "endWork", params: []param{workerID},
			summary: "Ends a worker. The job that it has goes back to the queue.",
		},
		{
			method: http.MethodPost, path: "jobs", name: "submitProgramJob", body: programs.NewJob{},
			answer: programs.SubmittedJob{}, summary: "Stores a job for a worker of programs.",
		},
		{
			method: http.MethodPost, path: "jobs/{id}/result", name: "awaitProgramJob", params: []param{jobID},
			body: programs.Wait{}, answer: jobs.Result{},
			summary: "Waits for the result of a job; status 204 if there is none yet.",
		},
	}
	for i := range programTable {
		t := &programTable[i]
		t.program, t.serve = true, func(s *Server, w http.ResponseWriter, r *http.Request) { s.program(t.name, w, r) }
	}
}

// program answers a request of a program.
func (s *Server) program(name string, w http.ResponseWriter, r *http.Request) {
	err := s.o.Programs.Serve(name, w, r)
	if err == nil || r.Context().Err() != nil { // done, or the client is gone
		return
	}
	status := programs.Status(err)
	if status >= http.StatusInternalServerError && !errors.Is(err, programs.ErrBusy) {
		s.log.Warn("dashboard: a request of a program failed", "operation", name, "error", err)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	fail(w, status, err.Error())
}
