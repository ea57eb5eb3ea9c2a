package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
)

// agentChecks compare the agents of the registry with each other and with this machine.
// agents-versions, agents-names and agents-clocks also need answers to the last question for
// metrics.
var agentChecks = []check{
	{"agents-present", "agents", ofState(present)},
	{"agents-lost", "agents", ofState(lost)},
	{"agents-state", "agents", ofState(states)},
	{"agents-versions", "agents", ofState(versions)},
	{"agents-names", "agents", ofState(names)},
	{"agents-clocks", "agents", ofState(clocks)},
}

// deviceChecks read the metrics of devices of GPU agents.
var deviceChecks = []check{
	{"device-state", "devices", ofState(deviceState)},
	{"device-fallback", "devices", ofState(fallback)},
	{"device-memory", "devices", ofState(deviceMemory)},
}

// alive returns the agents that are not lost. A lost agent is listed for some minutes after its
// end, so the checks must not count it.
func alive(f *Facts) (all []cluster.Agent) {
	for _, a := range f.State.Agents {
		if a.Lost == nil {
			all = append(all, a)
		}
	}
	return all
}

// present requires an agent of each pool. A pool without agents is an error even while it has no
// work: schedules and swarms of a user may need it at any time.
func present(f *Facts) Result {
	n := map[jobs.Pool]int{}
	for _, a := range alive(f) {
		n[a.Pool]++
	}
	var none []string
	// Both pools may be missing: each has a line.
	if n[jobs.PoolCPU] == 0 {
		none = append(none, "no CPU agent: jobs, schedules, delayed jobs and the gateway wait (start cpuagent)")
	}
	if n[jobs.PoolGPU] == 0 {
		none = append(none, "no GPU agent: no swarm is served (start gpuagent)")
	}
	if len(none) > 0 {
		return Result{
			Level: Failed, Summary: "a pool has no agent", Details: none,
			Cure: "start the missing agents, or exoswarm serve for all in one process",
		}
	}
	return ok("%d CPU agents and %d GPU agents are alive", n[jobs.PoolCPU], n[jobs.PoolGPU])
}

// lost reports agents that ended without a drain. It is an error if they held shards, because the
// shards wait for a takeover, and a warning otherwise. A drained agent leaves no trace here.
func lost(f *Facts) Result {
	var all []string
	shards := 0
	for _, a := range f.State.Agents {
		if a.Lost != nil {
			all = append(all, fmt.Sprintf("%s since %s, held %d shards", a.Name,
				a.Lost.Since.UTC().Format(time.RFC3339),
				len(a.Lost.Shards)))
			shards += len(a.Lost.Shards)
		}
	}
	if len(all) == 0 {
		return ok("no agent is lost")
	}
	r := Result{
		Level: Warn, Details: all,
		Summary: several(len(all), "agent", "agents") + " ended without giving back what was held",
		Cure:    "start them again; others take their shards over meanwhile",
	}
	if shards > 0 {
		r.Level = Failed
	}
	return r
}

// states reports agents that do not serve. An agent that is full or drains is as its operator wants
// it. Every other state is the agent's own finding: a device that fails, or a folder that it cannot
// use.
func states(f *Facts) Result {
	var bad, info []string
	for _, a := range alive(f) {
		switch a.State {
		case "serving":
		case "full", "draining":
			info = append(info, a.Name+": "+a.State)
		default:
			bad = append(bad, a.Name+": "+a.State)
		}
	}
	switch {
	case len(bad) > 0:
		return Result{
			Level: Failed, Summary: strconv.Itoa(len(bad)) + " agents cannot work as they should", Details: bad,
			Cure: "see the log and /readyz of these agents",
		}
	case len(info) > 0:
		return Result{Level: Info, Summary: strconv.Itoa(len(info)) + " agents take nothing new", Details: info}
	}
	return ok("all agents serve")
}

// versions warns of agents with different versions. Versions work together during an update, so it
// is not an error. It skips agents that have not answered.
func versions(f *Facts) Result {
	by := map[string][]string{}
	for _, a := range alive(f) {
		if a.Telemetry == nil {
			continue
		}
		for _, s := range a.Telemetry.Samples {
			if s.Name == "exoswarm_build_info" {
				by[s.Labels["version"]] = append(by[s.Labels["version"]], a.Name)
			}
		}
	}
	if len(by) == 0 {
		return Result{Level: Skip, Summary: "no agent told its version"}
	}
	// Sorted, so that two runs of the doctor are the same.
	if len(by) > 1 {
		var all []string
		for _, v := range slices.Sorted(maps.Keys(by)) {
			all = append(all, v+": "+strings.Join(by[v], ", "))
		}
		return Result{
			Level: Warn, Summary: strconv.Itoa(len(by)) + " versions run beside each other", Details: all,
			Cure: "update all agents to one version, GPU agents first",
		}
	}
	return ok("all agents have one version")
}

// names reports agents that share a name. The registry keeps one record for each name, and the
// processes overwrite it in turn, so only their answers distinguish them.
func names(f *Facts) Result {
	var twice []string
	asked := 0
	for _, a := range alive(f) {
		if a.Telemetry == nil {
			continue
		}
		if asked++; a.Telemetry.Twins > 0 {
			twice = append(twice, fmt.Sprintf("%s: %d processes answer", a.Name, a.Telemetry.Twins+1))
		}
	}
	if asked == 0 {
		return Result{Level: Skip, Summary: "no agent has answered"}
	}
	return finding(Failed, twice, "agents share a name",
		"give each agent a name of its own (--name)", "each agent has a name of its own")
}

// clockDrift is the largest accepted difference between the clocks of an agent and of this machine.
// It includes the time of an answer.
const clockDrift = 3 * time.Second

// clocks compares the time in the answer of each agent with the time when the answer arrived. A
// State of an earlier version has the time of the State alone. The clock of the NATS server, which
// orders messages, is not compared.
func clocks(f *Facts) Result {
	var off []string
	asked := 0
	for _, a := range alive(f) {
		if a.Telemetry == nil {
			continue
		}
		asked++
		heard := a.Heard
		if heard.IsZero() {
			heard = f.State.At
		}
		if d := a.Telemetry.At.Sub(heard); d.Abs() > clockDrift {
			off = append(off, fmt.Sprintf("%s: %v", a.Name, d.Round(100*time.Millisecond)))
		}
	}
	switch {
	case len(off) > 0:
		return Result{
			Level: Warn, Summary: "clocks of agents differ from this machine's", Details: off,
			Cure: "synchronise the clocks (chrony, systemd-timesyncd): deadlines of jobs are compared with them",
		}
	case asked == 0:
		return Result{Level: Skip, Summary: "no agent told its time"}
	}
	return ok("the clocks of %d agents agree with this machine's", asked)
}

// samples calls fn with each sample of a metric of all agents that are alive, and returns their
// number. 0 means that no agent has the metric, which differs from a value of 0: the caller then
// skips its check.
func samples(f *Facts, name string, fn func(agent string, s jobs.Sample)) (n int) {
	for _, a := range alive(f) {
		if a.Telemetry == nil {
			continue
		}
		for _, s := range a.Telemetry.Samples {
			if s.Name == name {
				n++
				fn(a.Name, s)
			}
		}
	}
	return n
}

// deviceState reports devices in a state other than ok. The metric has a sample with the value 1
// for the state of a device. A failed device is an error; a throttled device is a warning.
func deviceState(f *Facts) Result {
	r := Result{Level: OK}
	n := samples(f, "exoswarm_device_state", func(agent string, s jobs.Sample) {
		// One sample for each possible state; 1 marks the present one.
		if s.Value == 0 || s.Labels["state"] == "ok" {
			return
		}
		r.Details = append(r.Details, fmt.Sprintf("%s, device %s: %s", agent, s.Labels["device"], s.Labels["state"]))
		if s.Labels["state"] == "failed" {
			r.Level = Failed
		} else if r.Level == OK {
			r.Level = Warn
		}
	})
	switch {
	case n == 0:
		return Result{Level: Skip, Summary: "no GPU agent told of its device"}
	case r.Level == OK:
		return ok("all devices are ok")
	}
	r.Summary = strconv.Itoa(len(r.Details)) + " devices are not ok"
	r.Cure = "see /readyz of the agent, and its log for the error; nvidia-smi -q shows Xids and throttling"
	return r
}

// fallback reports GPU agents that chose the host device by themselves. It is a warning, since a
// swarm is served but far slower, and information for a program that was built without CUDA.
func fallback(f *Facts) Result {
	var all []string
	// The text of Fallback comes from gpuagent, which chooses it.
	level := Info // a binary without CUDA was built so
	for _, a := range alive(f) {
		if a.Fallback != "" {
			all = append(all, a.Name+": "+a.Fallback)
			if !strings.Contains(a.Fallback, "built without CUDA") {
				level = Warn
			}
		}
	}
	if len(all) > 0 {
		return Result{
			Level:   level,
			Summary: strconv.Itoa(len(all)) + " GPU agents run on the host device, because no GPU can be used",
			Details: all, Cure: "gpuagent devices shows what there is; --require-gpu makes it an error",
		}
	}
	return ok("no GPU agent fell back to the host device")
}

// deviceMemory reports memory of a device that has lost data: uncorrected errors that the device
// counts, and pages that were not where the agent had put them. Corrected errors are normal and do
// not count.
func deviceMemory(f *Facts) Result {
	var bad []string
	n := samples(f, "exoswarm_device_memory_errors_total", func(agent string, s jobs.Sample) {
		if s.Labels["kind"] == "uncorrected" && s.Value > 0 {
			bad = append(bad, fmt.Sprintf("%s, device %s: %.0f", agent, s.Labels["device"], s.Value))
		}
	})
	violations := 0
	samples(f, "exoswarm_swarm_residency_violations_total", func(agent string, s jobs.Sample) {
		if s.Value > 0 {
			violations++
			bad = append(bad, fmt.Sprintf("%s: %.0f pages were not on the device as claimed", agent, s.Value))
		}
	})
	samples(f, "exoswarm_model_residency_violations_total", func(agent string, s jobs.Sample) {
		if s.Value > 0 {
			bad = append(bad, fmt.Sprintf("%s: %.0f layers of models were not on the device as claimed", agent,
				s.Value))
		}
	})
	switch {
	case len(bad) > 0:
		return Result{
			Level: Failed, Summary: "memory of a device has changed or failed", Details: bad,
			Cure: "replace the device: its memory cannot be trusted",
		}
	case n == 0:
		return Result{Level: Skip, Summary: "no device counts errors of its memory"}
	}
	return ok("no uncorrected error of device memory")
}
