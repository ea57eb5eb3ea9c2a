// Package monitoring lists the metric families of all processes, and tests dashboards and alerts with a
// real cluster and a real Prometheus.
package monitoring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/serveprocess"
	"github.com/exoswarm/exoswarm/internal/command"
)

// Process is a kind of process with its metric families.
type Process struct {
	// Job is the value of the label job that deploy/prometheus gives its targets.
	Job      string
	Title    string
	Families []command.Family
}

// Processes returns the processes that serve metrics. Families that all of them have are those of the
// first Process alone, whose Job is empty.
func Processes() ([]Process, error) {
	list := []struct {
		job, title string
		families   func() ([]command.Family, error)
	}{
		{"exoswarm-cpuagent", "CPU agents", cpuprocess.Families},
		{"exoswarm-gpuagent", "GPU agents", gpuprocess.Families},
		{"exoswarm-cluster", "The cluster: `exoswarm ui` and `exoswarm serve`", serveprocess.Families},
	}
	all := []Process{{Title: "Every process"}}
	seen := map[string]int{}
	for _, p := range list {
		found, err := p.families()
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", p.job, err)
		}
		for _, f := range found {
			seen[f.Name]++
		}
		all = append(all, Process{p.job, p.title, found})
	}
	for i := range all[1:] {
		p := &all[i+1]
		p.Families = slices.DeleteFunc(p.Families, func(f command.Family) bool {
			if seen[f.Name] < len(list) {
				return false
			}
			if i == 0 {
				all[0].Families = append(all[0].Families, f)
			}
			return true
		})
	}
	return all, nil
}

// ByName returns the families of all processes by name.
func ByName() (map[string]command.Family, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	by := map[string]command.Family{}
	for _, p := range all {
		for _, f := range p.Families {
			by[f.Name] = f
		}
	}
	return by, nil
}

// head begins docs/metrics.md.
const head = `# Metrics

This file is generated: ` + "`go test ./cmd/internal/monitoring -run TestDocument -update`" + `.

Processes serve metrics with ` + "`--metrics HOST:PORT`" + ` at ` + "`/metrics`" + `,
in the text format of Prometheus or, if the client accepts it, in OpenMetrics. Histograms of jobs and entries then
have the ids of a sampled trace as exemplars. Units are base units: seconds, bytes, ratios from 0 to 1. A histogram
has the series ` + "`_bucket`" + ` (with the label ` + "`le`" + `), ` + "`_sum`" + ` and ` + "`_count`" + `.
No label is the id of a job, a swarm, an agent of a swarm or a group. The label ` + "`instance`" + ` of Prometheus
tells processes apart. [operations.md](operations.md) explains their use, ` + "`deploy/prometheus`" + ` has alerts, and
` + "`deploy/grafana`" + ` has dashboards.
`

// absent says in docs/metrics.md which families one may look for, and what is in their place.
const absent = `
## What is not measured
- Bytes over PCIe as the device counts them: the counters of NVML have 32 bits, so a busy link wraps them ten times a
  second. ` + "`exoswarm_device_copied_bytes_total`" + ` has the copies of the process.
- Seconds of a kernel by its name: an event around each launch would cost more than short kernels do.
  ` + "`exoswarm_swarm_stage_seconds_total`" + ` has the stage kernel by cell, and
  ` + "`exoswarm_device_busy_ratio`" + ` what the driver measures.
- Sources of stream jobs as a label: their number is not bounded. Rows are counted by outcome.
- The age of the newest row of a stream by its own timestamp: files have old rows by intent.
  ` + "`exoswarm_stream_decision_latency_seconds`" + ` has the time since a row was read.
- Batches of a stream job that wait for decisions: at most 4 of each job, by construction.
- Rows by sink: sinks get every decision. ` + "`exoswarm_stream_sink_dropped_total`" + ` has those that were lost.
- Hosts of the requests of jobs as a label: their number is not bounded.
- States of shards in a GPU agent are in ` + "`exoswarm_gpuagent_assignments`" + `, replays in
  ` + "`exoswarm_swarm_replaying_shards`" + `. A shard that an agent cannot serve for its memory, its cell or its
  version is answered with an error, which ` + "`exoswarm_swarm_rejected_entries_total`" + ` has.
- The source of a guess as a label of prefetched pages: the tier tells whether guesses are useful.
- The kind of a dead letter and of the oldest job in the metrics of the cluster: a look would have to read every job.
  ` + "`exoswarm_jobs_dead_letters_total`" + ` of the agents has the kind.
- Swarms by how they are addressed: ` + "`exoswarm swarm list`" + ` shows it, and no alert needs it.
- Missed times of schedules: every agent evaluates every schedule, so each would count the same time.
  ` + "`exoswarm cron list`" + ` shows the last run and the next one.
- Entries that a replica of a stream lacks: ` + "`exoswarm_jetstream_replicas_behind`" + ` has the replicas.
`

// Markdown returns docs/metrics.md.
func Markdown() (string, error) {
	all, err := Processes()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head)
	for _, p := range all {
		fmt.Fprintf(&b, "\n## %s\n", p.Title)
		if p.Job != "" {
			fmt.Fprintf(&b, "Their targets have the label `job=%q`.\n\n", p.Job)
		}
		b.WriteString("| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n")
		for _, f := range p.Families {
			labels := ""
			if len(f.Labels) > 0 {
				labels = "`" + strings.Join(f.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, labels, f.Unit(),
				strings.ReplaceAll(f.Help, "|", `\|`))
		}
	}
	b.WriteString(absent)
	b.WriteString("\nProcesses also have the metrics of the Go runtime (`go_*`), of the operating system's process " +
		"(`process_*`) and of\nthe endpoint itself (`promhttp_*`).\n")
	return b.String(), nil
}
