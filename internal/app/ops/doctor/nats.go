package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// natsChecks come first: without the server no later check has facts.
var natsChecks = []check{
	{"nats-reachable", "nats", reachable},
	{"nats-version", "nats", ofState(natsVersion)},
	{"nats-rtt", "nats", ofState(roundTrip)},
	{"nats-store", "nats", ofState(store)},
	{"nats-leaders", "nats", ofState(leaders)},
	{"nats-replicas", "nats", ofState(replicas)},
	{"nats-streams", "nats", drift},
	{"nats-limits", "nats", ofState(limits)},
}

// leastVersion is the first version of the server with all that the protocol uses: delayed and
// scheduled messages, and atomic batches.
var leastVersion = [2]int{2, 12}

// The limits of the checks. A part is used over allowed, from 0 to 1.
const (
	slowTrip = 20 * time.Millisecond
	fullWarn = 0.8
	fullBad  = 0.95
)

func ok(format string, args ...any) Result {
	return Result{Level: OK, Summary: fmt.Sprintf(format, args...)}
}

// finding returns a result with details, or one without a finding if there are none.
func finding(level Level, details []string, summary, cure, fine string) Result {
	if len(details) == 0 {
		return ok("%s", fine)
	}
	return Result{Level: level, Summary: summary, Details: details, Cure: cure}
}

// ofState skips a check without a State. Every check that reads the State has it.
func ofState(run func(*Facts) Result) func(*Facts) Result {
	return func(f *Facts) Result {
		if f.State == nil || f.State.Frame == 0 && f.State.NATS.Version == "" {
			return Result{Level: Skip, Summary: "the cluster could not be asked"}
		}
		return run(f)
	}
}

// reachable distinguishes four failures, since each has another cure: JetStream without a leader,
// streams that are missing or unreadable, no answer, and no poll yet. It is the only check that
// reads Error.
func reachable(f *Facts) Result {
	switch {
	case strings.Contains(f.Error, telemetry.ErrNoLeader.Error()):
		return Result{
			Level: Failed, Summary: "the NATS servers answer, and JetStream has no leader", Details: []string{f.Error},
			Cure: "start the NATS servers that are missing: a majority must run",
		}
	// A server without the streams of exoswarm: the connection works, the poll does not.
	case f.Error != "" && f.Drift != nil:
		return Result{
			Level: Failed, Summary: "the NATS server answers, and its streams cannot be read",
			Details: []string{f.Error},
			Cure:    "start an agent, or exoswarm init --yes: either makes the streams that are missing",
		}
	case f.Error != "" && f.State != nil && f.State.NATS.Refuses: // of the last answer
		return Result{
			Level: Failed, Summary: "the NATS server does not answer: its disk was nearly full at its last answer",
			Details: []string{f.Error}, Cure: "make room on the disk of the server, and start it",
		}
	case f.Error != "":
		return Result{
			Level: Failed, Summary: "the NATS server does not answer", Details: []string{f.Error},
			Cure: "start the server (exoswarm nats), or check --nats, the network and the login",
		}
	}
	return ofState(func(f *Facts) Result {
		return ok("the NATS server answers: %s, version %s", f.State.NATS.Server, f.State.NATS.Version)
	})(f)
}

// natsVersion requires leastVersion. A version that is not of the form MAJOR.MINOR is skipped.
func natsVersion(f *Facts) Result {
	// Releases are like 2.12.3, and builds like 2.12.0-RC.2.
	parts := strings.SplitN(f.State.NATS.Version, ".", 3)
	if len(parts) < 2 {
		return Result{Level: Skip, Summary: "the server names no version"}
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	switch {
	case err1 != nil || err2 != nil:
		return Result{Level: Skip, Summary: "the version of the server is " + f.State.NATS.Version}
	case major < leastVersion[0] || major == leastVersion[0] && minor < leastVersion[1]:
		return Result{
			Level: Failed, Summary: "the NATS server is too old: " + f.State.NATS.Version,
			Cure: fmt.Sprintf("use version %d.%d or later", leastVersion[0], leastVersion[1]),
		}
	}
	return ok("the NATS server has version %s", f.State.NATS.Version)
}

// roundTrip warns of a slow connection. One message is measured, so a single value above the limit
// may be chance; a swarm is slow if it stays there.
func roundTrip(f *Facts) Result {
	rtt := f.State.NATS.RTT
	ms := float64(rtt) / 1e6
	r := ok("a message to the server and back takes %v", rtt.Round(time.Microsecond))
	if rtt > slowTrip {
		r = Result{
			Level: Warn, Summary: fmt.Sprintf("a message to the server and back takes %v", rtt.Round(time.Microsecond)),
			Cure: "run agents near the server: each entry of a log waits for it",
		}
	}
	r.Value, r.Unit = &ms, "ms"
	return r
}

// store judges the used part of the storage of the account. A server that refuses to store is an
// error whatever the numbers are.
func store(f *Facts) Result {
	n := f.State.NATS
	if n.Refuses {
		return Result{
			Level: Failed, Summary: "the NATS server refuses to store: its disk is nearly full",
			Cure: "make room on the disk of the server; it stores again by itself",
		}
	}
	// A limit of -1 is none; 0 is Refuses.
	if n.StoreLimit <= 0 {
		return ok("%d bytes are stored; the account has no limit", n.Store)
	}
	part := float64(n.Store) / float64(n.StoreLimit)
	r := level(part, fmt.Sprintf("%.0f %% of the store is used: %d of %d bytes", 100*part, n.Store, n.StoreLimit),
		"make room on the disk of the server, or raise its limit")
	return r
}

// level judges a used part of a limit: a warning from fullWarn, an error from fullBad. The value of
// the result is in percent. cure is set only if there is something to do.
func level(part float64, summary, cure string) Result {
	percent := 100 * part
	r := Result{Level: OK, Summary: summary, Value: &percent, Unit: "%"}
	switch {
	case part >= fullBad:
		r.Level, r.Cure = Failed, cure
	case part >= fullWarn:
		r.Level, r.Cure = Warn, cure
	}
	return r
}

// leaders reports streams without a leader, both of the queue and of the logs of shards. Nothing
// can be written to such a stream or read from it, so this is an error.
func leaders(f *Facts) Result {
	var bad []string
	for _, s := range f.State.NATS.Streams {
		if s.Leaderless {
			bad = append(bad, fmt.Sprintf("%s, %d replicas", s.Name, s.Replicas))
		}
	}
	for _, sw := range f.State.Swarms {
		for _, sh := range sw.Shards {
			if sh.Leaderless != "" {
				bad = append(bad, sh.Leaderless)
			}
		}
	}
	return finding(Failed, bad, strconv.Itoa(len(bad))+" streams have no leader",
		"start the NATS servers that are missing: a majority of the replicas must run", "each stream has a leader")
}

// replicas warns of replicas that are behind, and of streams with one replica in a cluster of
// servers: both lose data or service with the next failure. One server alone is information.
func replicas(f *Facts) Result {
	var behind, single []string
	for _, s := range f.State.NATS.Streams {
		// Both findings are collected; a replica that is behind is the more urgent one.
		if len(s.Behind) > 0 {
			behind = append(behind, s.Name+": "+strings.Join(s.Behind, ", "))
		}
		if _, chosen := wire.LevelOf(s.Name); s.Replicas == 1 && !chosen { // by the jobs in it
			single = append(single, s.Name)
		}
	}
	switch {
	case len(behind) > 0:
		return Result{
			Level: Warn, Summary: strconv.Itoa(len(behind)) + " streams have replicas that are gone or behind",
			Details: behind,
			Cure:    "start the servers that are missing; a replica that returns catches up by itself",
		}
	case f.State.NATS.Cluster != "" && len(single) > 0:
		return Result{
			Level: Warn, Summary: fmt.Sprintf("%d streams of a cluster have one replica", len(single)), Details: single,
			Cure: "exoswarm init --replicas 3 --yes",
		}
	case f.State.NATS.Cluster == "":
		return Result{Level: Info, Summary: "one NATS server keeps everything: its disk is the only copy"}
	}
	return ok("all replicas are current")
}

// drift warns of settings that another version or an operator has changed. The cluster works with
// them, but limits and retention are not what this version relies on.
func drift(f *Facts) Result {
	if f.Drift == nil {
		return Result{Level: Skip, Summary: "the settings of the streams could not be read"}
	}
	if d := *f.Drift; len(d) > 0 {
		return Result{
			Level: Warn, Summary: strconv.Itoa(len(d)) + " settings of streams differ from what this version wants",
			Details: d,
			Cure:    "exoswarm init shows them, exoswarm init --yes applies them",
		}
	}
	return ok("the streams are as this version wants them")
}

// limits returns the worst of all streams with a limit of bytes or messages; streams without limits
// do not count.
func limits(f *Facts) Result {
	worst := Result{Level: OK, Summary: "no stream is near its limit"}
	for _, s := range f.State.NATS.Streams {
		for _, c := range []struct {
			used  uint64
			limit int64
			unit  string
		}{{s.Bytes, s.MaxBytes, "bytes"}, {s.Messages, s.MaxMsgs, "messages"}} {
			// A limit of -1 is none.
			if c.limit <= 0 {
				continue
			}
			part := float64(c.used) / float64(c.limit)
			r := level(part, fmt.Sprintf("stream %s has %d of %d %s", s.Name, c.used, c.limit, c.unit),
				"let agents work it off, or raise the limit")
			// Of several streams of one level the first is reported.
			if r.Level.rank() < worst.Level.rank() {
				worst = r
			}
		}
	}
	return worst
}
