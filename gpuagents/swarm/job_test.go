package swarm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestJobs: the jobs of rules are read as they are written, and are the jobs of the record.
func TestJobs(t *testing.T) {
	s, err := Parse("x.yaml", []byte(ruled+"on_decision: [any -> submit a, changed -> submit b]\n"+
		"jobs:\n  a:\n    pool: cpu\n    kind: fetch\n    spec: {url: 'http://x/$(round)', tries: 3, "+
		"deep: [{by: $(winner)}]}\n    lane: high\n    tenant: acme\n    max_attempts: 2\n    result_ttl_s: 60\n"+
		"  b: {pool: gpu, kind: k}\n"))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := FromJSON(data)
	if err != nil || fmt.Sprint(again.Jobs) != strings.ReplaceAll(fmt.Sprint(s.Jobs), "int", "float64") {
		t.Errorf("FromJSON: jobs %v, error %v, want %v", again.Jobs, err, s.Jobs)
	}
	record := swarms.Swarm{Version: 1, ID: "of", Nonce: "aaaaaaaa", Spec: data}
	e := swarms.Emission{Version: 1, Swarm: "of", Name: "a", Rule: 1, Entry: 9, Round: 4, Winner: "blue"}
	j, err := record.Job(e)
	if err != nil || j.Validate() != nil || j.Lane != jobs.High || j.Tenant != "acme" || j.MaxAttempts != 2 ||
		j.ResultTTL != 60 || string(j.Spec) != `{"deep":[{"by":"blue"}],"tries":3,"url":"http://x/4"}` ||
		j.ID != record.JobID("acme", "a", 9, 1) || !strings.HasPrefix(j.ID, "acme--a-") {
		t.Errorf("Job: %+v, spec %s, error %v", j, j.Spec, err)
	}
	e.Name = "b"
	if j, err = record.Job(e); err != nil || string(j.Spec) != "null" || j.Pool != jobs.PoolGPU {
		t.Errorf("Job: %+v, spec %s, error %v", j, j.Spec, err)
	}
}

// TestJobsRefused: jobs that are not valid are refused with the line and the cure.
func TestJobsRefused(t *testing.T) {
	job := func(text string) string {
		return "on_decision: [any -> submit retrain]\njobs:\n  retrain: {" + text + "}\n"
	}
	many := "on_decision: [any -> submit j0]\njobs:\n"
	for i := range maxJobs + 1 {
		many += fmt.Sprintf("  j%d: {pool: cpu, kind: k}\n", i)
	}
	for text, want := range map[string]string{
		job("pool: cpu"):                                         "x.yaml:7: jobs: job retrain: kind",
		job("kind: k"):                                           `x.yaml:7: jobs: job retrain: pool "": use "cpu"`,
		job("pool: cpu, kind: k, lane: fast"):                    `lane "fast": use "high"`,
		job("pool: cpu, kind: k, max_attempts: 101"):             "use 1 to 100",
		job("pool: cpu, kind: k, id: x"):                         `unknown key "jobs.retrain.id": did you mean`,
		job("pool: cpu, kind: k, tenant: a b"):                   "tenant",
		job("pool: cpu, kind: stream, spec: {}"):                 "x.yaml:7: jobs: job retrain: field /spec",
		job("pool: cpu, kind: k, spec: '$(rnd)'"):                "there are [decision leader round swarm winner]",
		job("pool: cpu, kind: k, spec: 'a $(decision)'"):         "$(decision) is a value of its own",
		job("pool: cpu, kind: k, spec: {1: 2}"):                  "spec",
		job("pool: cpu, kind: k, tenant: " + rep("t", 39)):       "use shorter ones",
		job("pool: cpu, kind: k, spec: " + rep("t", maxJobSpec)): "use at most 16384",
		many:                                "17 of them: use at most 16",
		"jobs: {a: {pool: cpu, kind: k}}\n": "x.yaml:5: jobs: rules submit them, and there are none",
		"on_decision: [any -> submit b, any -> submit b]\njobs:\n  b: {pool: cpu, kind: k}\n  c: {pool: cpu, kind: " +
			"k}\n": "x.yaml:8: jobs: no rule submits c: write it into on_decision",
		"on_decision: [any -> submit retran]\njobs: {retrain: {pool: cpu, kind: k}}\n": `x.yaml:5: on_decision ` +
			`"any -> submit retran": job "retran": did you mean "retrain"`,
		"on_decision: ['any -> submit b, submit b']\njobs: {b: {pool: cpu, kind: k}}\n": "submits b twice",
		"shards: 2\n" + job("pool: cpu, kind: k"):                                       "leave shards out",
	} {
		if _, err := Parse("x.yaml", []byte(ruled+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: error %.300v, want %q", text, err, want)
		}
	}
}

func rep(s string, n int) string { return strings.Repeat(s, n) }
