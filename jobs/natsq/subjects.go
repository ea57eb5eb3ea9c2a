package natsq

import (
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// Names on the server. The subjects of logs are exo.log.SWARM.SHARD.DIR; the others are listed in docs/protocol.md.
const (
	resultStream  = "EXO_RESULTS"
	deadStream    = "EXO_DEAD"
	schedStream   = "EXO_SCHED"
	waitStream    = "EXO_WAIT"
	joblogStream  = "EXO_JOBLOGS"
	pushStream    = "EXO_PUSH"
	leaseBucket   = "EXO_LEASES"
	swarmBucket   = "EXO_SWARMS"
	cancelBucket  = "EXO_CANCEL"
	controlBucket = "EXO_CONTROL"
	agentBucket   = "EXO_AGENTS"
	cronBucket    = "EXO_CRON"
	tenantBucket  = "EXO_TENANTS"
	objectBucket  = "EXO_OBJECTS"
)

func jobStream(p jobs.Pool) string { return "EXO_JOBS_" + strings.ToUpper(string(p)) }

func pools() []jobs.Pool { return []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} }

// source is one queue within a pool: what one consumer on the server hands out.
type source struct {
	pool   jobs.Pool
	kind   string
	lane   jobs.Lane
	tenant string
}

func sourceOf(j jobs.Job) source {
	j = j.WithDefaults()
	return source{j.Pool, j.Kind, j.Lane, j.Tenant}
}

// tail is what the subjects of all streams share behind their first two words, without the id.
func (s source) tail() string {
	return string(s.pool) + "." + s.kind + "." + string(s.lane) + "." + s.tenant
}

func (s source) job(id string) string   { return "exo.job." + s.tail() + "." + id }
func (s source) sched(id string) string { return "exo.sched." + s.tail() + "." + id }
func (s source) due(id string) string   { return "exo.due." + s.tail() + "." + id }
func (s source) wait(id string) string  { return "exo.wait." + s.tail() + "." + id }
func (s source) dead(id string) string {
	return "exo.dead." + string(s.pool) + "." + s.kind + "." + s.tenant + "." + id
}

// consumer is the name of the source's consumer. '+' may not stand in an id, so names of two sources are never equal.
func (s source) consumer() string {
	return s.kind + "+" + string(s.lane) + "+" + s.tenant
}

// parseConsumer is the inverse of source.consumer; ok is false for a consumer that is none of ours.
func parseConsumer(p jobs.Pool, name string) (s source, ok bool) {
	parts := strings.Split(name, "+")
	if len(parts) != 3 {
		return s, false
	}
	s = source{p, parts[0], jobs.Lane(parts[1]), parts[2]}
	return s, s.valid()
}

// parseSubject takes exo.WORD.POOL.KIND.LANE.TENANT[.ID] apart. Anybody may publish to a stream, so every part is checked
// except the id.
func parseSubject(subject string) (s source, id string, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 6 || len(parts) > 7 || parts[0] != "exo" {
		return s, "", false
	}
	if len(parts) == 7 {
		id = parts[6]
	}
	s = source{jobs.Pool(parts[2]), parts[3], jobs.Lane(parts[4]), parts[5]}
	return s, id, s.valid()
}

func (s source) valid() bool {
	known := false
	for _, l := range jobs.Lanes() {
		known = known || l == s.lane
	}
	return known && (s.pool == jobs.PoolCPU || s.pool == jobs.PoolGPU) && jobs.CheckID("", s.kind) == nil && jobs.CheckID("", s.tenant) == nil
}
