package main

import "fmt"

// area is a part of the tree whose mutants are sampled together.
type area struct {
	name     string
	packages []string
}

// scope is the code whose mutants matter most.
var scope = []area{
	{"jobs/natsq", []string{
		"jobs/natsq", "jobs/natsq/auth", "jobs/natsq/control", "jobs/natsq/gateway",
		"jobs/natsq/natsconn", "jobs/natsq/queue", "jobs/natsq/server", "jobs/natsq/swarmlog", "jobs/natsq/wire",
	}},
	{"gpuagents", []string{
		"gpuagents", "gpuagents/pages", "gpuagents/shard", "gpuagents/state",
	}},
	{"cpuagents", []string{
		"cpuagents", "cpuagents/access", "cpuagents/files", "cpuagents/rows",
		"cpuagents/source",
	}},
	{"tiers/pagestore", []string{"tiers/pagestore"}},
	{"consensus", []string{"consensus"}},
}

// files are the files of a package that guard, fence, commit or limit; a package that is not named
// has all files in scope.
var files = map[string][]string{
	"jobs/natsq":          {"task.go"},
	"jobs/natsq/control":  {"heartbeat.go", "limiter.go", "limits.go"},
	"jobs/natsq/gateway":  {"gateway.go", "tenant.go"},
	"jobs/natsq/natsconn": {"login.go", "message.go", "violation.go"},
	"jobs/natsq/queue":    {"cancel.go", "deadletters.go", "results.go", "submit.go"},
	"jobs/natsq/swarmlog": {"log.go", "swarms.go"},
	"jobs/natsq/wire":     {"fair_queue.go", "quota.go", "quota_record.go"},
	"jobs/natsq/auth":     {"account.go", "role.go", "user.go", "init.go"},
	"gpuagents":           {"agent.go"},
	"gpuagents/pages":     {"budget.go"},
	"gpuagents/shard": {
		"appender.go", "begin.go", "checkpoint.go", "in_flight.go", "loop.go", "pipeline.go",
		"serve.go", "writer.go",
	},
	"gpuagents/state": {"snapshotter.go"},
	"tiers/pagestore": {
		"batch.go", "commit.go", "locks.go", "options.go", "page.go", "pagetable.go", "records.go",
		"store.go",
	},
	"cpuagents":        {"ordered.go", "stream.go", "streamer.go"},
	"cpuagents/files":  {"files.go", "output.go", "root.go", "spill.go"},
	"cpuagents/source": {"journal.go", "source.go"},
	"cpuagents/rows":   {"arrow.go", "arrow_message.go", "compact.go", "parquet.go", "unpack.go"},
}

func areaOf(name string) (area, error) {
	for _, a := range scope {
		if a.name == name {
			return a, nil
		}
	}
	for _, a := range scope {
		for _, p := range a.packages {
			if p == name {
				return area{p, []string{p}}, nil
			}
		}
	}
	return area{}, fmt.Errorf("no area %q: see tools/mutate/scope.go", name)
}
