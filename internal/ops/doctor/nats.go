package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/servers"
)

var natsChecks = []check{
	{"nats-reachable", "nats", reachable},
	{"nats-version", "nats", natsVersion},
	{"nats-rtt", "nats", roundTrip},
	{"nats-store", "nats", store},
	{"nats-leaders", "nats", leaders},
	{"nats-replicas", "nats", replicas},
	{"nats-streams", "nats", drift},
	{"nats-limits", "nats", limits},
}

// leastVersion is the first version of the server with all that the protocol uses.
var leastVersion = [2]int{2, 12}

const (
	slowTrip = 20 * time.Millisecond
	fullWarn = 0.8
	fullBad  = 0.95
)

func ok(format string, args ...any) Result {
	return Result{Level: OK, Summary: fmt.Sprintf(format, args...)}
}

// missing is the result of a check without its facts.
func missing(f *Facts) (Result, bool) {
	if f.State == nil || f.State.Frame == 0 && f.State.NATS.Version == "" {
		return Result{Level: Skip, Summary: "the cluster could not be asked"}, true
	}
	return Result{}, false
}

func count(n int) string { return strconv.Itoa(n) }

// counted is a number with its noun, which ends in s for several.
func counted[N int | float64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%.0f %ss", float64(n), noun)
}

func reachable(f *Facts) Result {
	switch {
	case strings.Contains(f.Error, servers.ErrNoLeader.Error()):
		return Result{
			Level: Failed, Summary: "the NATS servers answer, and JetStream has no leader", Details: []string{f.Error},
			Cure: "start the NATS servers that are missing: a majority must run",
		}
	case f.Error != "" && f.Drift != nil:
		return Result{
			Level: Failed, Summary: "the NATS server answers, and its streams cannot be read",
			Details: []string{f.Error},
			Cure:    "start an agent, or exoswarm init --yes: either makes the streams that are missing",
		}
	case f.Error != "":
		return Result{
			Level: Failed, Summary: "the NATS server does not answer", Details: []string{f.Error},
			Cure: "start the server (exoswarm nats), or check --nats, the network and the login",
		}
	}
	if r, no := missing(f); no {
		return r
	}
	return ok("the NATS server answers: %s, version %s", f.State.NATS.Server, f.State.NATS.Version)
}

func natsVersion(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
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

func roundTrip(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
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

func store(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
	n := f.State.NATS
	if n.Refuses {
		return Result{
			Level: Failed, Summary: "the NATS server refuses to store: its disk is nearly full",
			Cure: "make room on the disk of the server; it stores again by itself",
		}
	}
	if n.StoreLimit <= 0 {
		return ok("%d bytes are stored; the account has no limit", n.Store)
	}
	part := float64(n.Store) / float64(n.StoreLimit)
	r := level(part, fmt.Sprintf("%.0f %% of the store is used: %d of %d bytes", 100*part, n.Store, n.StoreLimit),
		"make room on the disk of the server, or raise its limit")
	return r
}

// level judges a used part.
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

func leaders(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
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
	if len(bad) > 0 {
		return Result{
			Level: Failed, Summary: count(len(bad)) + " streams have no leader", Details: bad,
			Cure: "start the NATS servers that are missing: a majority of the replicas must run",
		}
	}
	return ok("each stream has a leader")
}

func replicas(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
	var behind, single []string
	for _, s := range f.State.NATS.Streams {
		if len(s.Behind) > 0 {
			behind = append(behind, s.Name+": "+strings.Join(s.Behind, ", "))
		}
		if s.Replicas == 1 {
			single = append(single, s.Name)
		}
	}
	switch {
	case len(behind) > 0:
		return Result{
			Level: Warn, Summary: count(len(behind)) + " streams have replicas that are gone or behind",
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

func drift(f *Facts) Result {
	if f.Drift == nil {
		return Result{Level: Skip, Summary: "the settings of the streams could not be read"}
	}
	if d := *f.Drift; len(d) > 0 {
		return Result{
			Level: Warn, Summary: count(len(d)) + " settings of streams differ from what this version wants",
			Details: d,
			Cure:    "exoswarm init shows them, exoswarm init --yes applies them",
		}
	}
	return ok("the streams are as this version wants them")
}

func limits(f *Facts) Result {
	if r, no := missing(f); no {
		return r
	}
	worst := Result{Level: OK, Summary: "no stream is near its limit"}
	for _, s := range f.State.NATS.Streams {
		for _, c := range []struct {
			used  uint64
			limit int64
			unit  string
		}{{s.Bytes, s.MaxBytes, "bytes"}, {s.Messages, s.MaxMsgs, "messages"}} {
			if c.limit <= 0 {
				continue
			}
			part := float64(c.used) / float64(c.limit)
			r := level(part, fmt.Sprintf("stream %s has %d of %d %s", s.Name, c.used, c.limit, c.unit),
				"let agents work it off, or raise the limit")
			if r.Level.rank() < worst.Level.rank() {
				worst = r
			}
		}
	}
	return worst
}
