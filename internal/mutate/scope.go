package main

import "fmt"

// area is a part of the tree whose mutants are sampled together.
type area struct {
	name     string
	packages []string
}

// scope is the code whose mutants matter most.
var scope = []area{
	{"jobs/natsq", []string{"jobs/natsq", "jobs/natsq/auth", "jobs/natsq/server"}},
	{"gpuagents", []string{"gpuagents"}},
	{"cpuagents", []string{"cpuagents", "cpuagents/egress", "cpuagents/secret"}},
	{"tiers/pagestore", []string{"tiers/pagestore"}},
	{"consensus", []string{"consensus"}},
}

// files are those of a package that guard, fence, commit or limit; all files of a package that is not named here.
var files = map[string][]string{
	"jobs/natsq": {
		"account.go", "cancel.go", "dead.go", "gateway_tenant.go", "gateway_jobs.go", "gateway.go", "grants.go", "intake.go", "lease.go", "limits.go", "log.go", "login.go", "message.go",
		"objects.go", "refusal.go", "result.go", "retire.go", "submit.go", "swarms.go", "task.go", "tenant.go",
	},
	"gpuagents": {"agent.go", "budget.go", "checkpoint.go", "keeping.go", "memory.go", "sizing.go", "room.go", "shard.go", "snapshot.go", "writer.go"},
	"cpuagents": {
		"arrow.go", "column.go", "compact.go", "directory.go", "feed.go", "files.go", "http.go", "journal.go", "object.go", "pack.go", "parquet.go", "push.go", "remote.go", "sink.go",
		"source.go", "sql.go", "stream.go", "streamer.go", "subject.go",
	},
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
	return area{}, fmt.Errorf("no area %q: see internal/mutate/scope.go", name)
}
