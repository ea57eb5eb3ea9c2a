// Package doctor checks a cluster, names a cure for each thing that is wrong, and writes what it
// found into one file for others (WriteBundle). It also names the one cause for which a job or a
// swarm does not progress (ExplainJob, ExplainSwarm).
//
// A check is a pure function of Facts, and a cause of its own facts: neither does I/O or reads a
// clock. So the facts of a cluster can be stored in a file and checked again elsewhere, by another
// version too. Collect and ReadLocal gather the facts; Examine runs the checks; the Write functions
// print their results.
package doctor

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
)

// Level is the severity of a result. Its values are part of the JSON.
type Level string

// The levels, the worst first.
const (
	Failed Level = "error" // work is not done, or is at risk: act now
	Warn   Level = "warn"  // it works, and somebody should look
	Info   Level = "info"  // worth knowing
	OK     Level = "ok"
	Skip   Level = "skip" // the facts that the check needs are missing
)

// rank orders levels, the worst first. A skipped check ranks before a check that is ok, because
// nobody knows what it would have found.
func (l Level) rank() int { return slices.Index([]Level{Failed, Warn, Info, Skip, OK}, l) }

// Result is what a check found. Its JSON is part of the HTTP API.
type Result struct {
	// ID and Category name the check. Ids are stable: alerts and --strict runs select by them.
	ID       string `json:"id"`
	Category string `json:"category"`
	Level    Level  `json:"level"`
	// Summary is one sentence without a full stop. Details has one line for each thing that is
	// wrong, at most mostDetails and a line with the number of the others. Cure tells an operator
	// what to do; it is empty if there is nothing to do.
	Summary string   `json:"summary"`
	Details []string `json:"details,omitempty"`
	Cure    string   `json:"cure,omitempty"`
	// Value and Unit are the number that the check judged, for graphs. Value is nil if there is
	// none. Unit is one of ms, %, h, files, jobs and bytes.
	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
}

// Facts are the input of the checks. A nil field is an unknown fact; checks that need it return
// Skip. Checks must not change Facts.
type Facts struct {
	// At is the time of the collection, by the clock of this machine.
	At time.Time `json:"at"`
	// State is one poll of the cluster with the metrics of the agents. Checks of agents, queues and
	// swarms need it.
	State *cluster.State `json:"state,omitempty"`
	// Error is the cause why the cluster could not be asked. State is then nil or the last State
	// that was read.
	Error string `json:"error,omitempty"`
	// Drift has a line for each setting of a stream that differs from what this version wants. nil
	// means that the settings could not be read, and an empty list that all agree.
	Drift *[]string `json:"drift,omitempty"`
	// URL is the address of the NATS server as it was given, without credentials; it may be a list.
	// An empty URL stands for a connection inside this process.
	URL string `json:"url,omitempty"`
	// Local are the limits of the machine that the doctor runs on.
	Local *Local `json:"local,omitempty"`
	// Version is the version of this program.
	Version string `json:"version,omitempty"`
}

// Local are limits of the machine and the process that ask. 0 means that a limit could not be read.
type Local struct {
	OpenFiles    uint64 `json:"open_files"`         // soft limit of this process
	LockedMemory uint64 `json:"locked_memory"`      // bytes; the largest value: no limit
	FreeDisk     uint64 `json:"free_disk_bytes"`    // of the working folder
	SharedMemory uint64 `json:"shared_memory_size"` // bytes of /dev/shm; 0: there is none
}

// check is one check. run returns a result without ID and category, which Examine fills in.
type check struct {
	id, category string
	run          func(f *Facts) Result
}

// mostDetails bounds Result.Details, so that a cluster with thousands of shards has a readable
// report.
const mostDetails = 20

// Categories lists the categories of checks, in the order in which they run.
func Categories() []string {
	return []string{"nats", "agents", "devices", "queues", "swarms", "detectors", "security", "machine"}
}

// Checks lists all checks, each as its id and its category, in the order in which they run.
func Checks() (all [][2]string) {
	for _, c := range checks() {
		all = append(all, [2]string{c.id, c.category})
	}
	return all
}

// Examine runs the checks whose category or id is in only, or all checks if only is empty. It
// returns one result for each, the worst first; results of one level keep the order of the checks.
// Names in only that no check has are ignored: the caller compares them with Checks.
func Examine(f *Facts, only ...string) []Result {
	all := []Result{}
	for _, c := range checks() {
		if len(only) > 0 && !slices.Contains(only, c.category) && !slices.Contains(only, c.id) {
			continue
		}
		// A check without its facts still has a result, so a report always has the same checks.
		r := c.run(f)
		r.ID, r.Category = c.id, c.category
		// The full slice expression makes append copy: the array may belong to the Facts.
		if n := len(r.Details); n > mostDetails {
			r.Details = append(r.Details[:mostDetails:mostDetails], "and more: "+strconv.Itoa(n-mostDetails))
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Result) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return all
}

// Worst returns the worst level of results. Skipped checks do not count. It is OK if no other check
// is left.
func Worst(all []Result) Level {
	worst := OK
	for _, r := range all {
		if r.Level != Skip && r.Level.rank() < worst.rank() {
			worst = r.Level
		}
	}
	return worst
}

// checks returns all checks. A check whose failure explains others comes before them.
func checks() []check {
	return slices.Concat(natsChecks, agentChecks, deviceChecks, queueChecks, swarmChecks, detectorChecks,
		securityChecks, machineChecks)
}
