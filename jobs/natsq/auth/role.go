package auth

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
)

// Names of the accounts. The account of a tenant is tenantPrefix and its name.
const (
	systemAccount  = "system"
	clusterAccount = "cluster"
	viewerAccount  = "viewers"
	tenantPrefix   = "tenant-"
)

// The roles.
const (
	Agent     = "agent"     // of CPU agents
	GPUAgent  = "gpuagent"  // of GPU agents
	Submitter = "submitter" // of the programs and people of a tenant
	Operator  = "operator"  // of people who run the cluster
	Viewer    = "viewer"    // of people and programs that observe all tenants
	// Pusher is the role of the user that hands accounts to running servers. People and agents do
	// not get it.
	Pusher = "pusher"
)

// Role is a set of permissions. It is part of the account, as the template of a signing key, and
// not of its users. So a change reaches users that exist.
type Role struct {
	Name    string
	Account string // the account of its users; tenantPrefix for the account of their tenant
	Does    string // a description for people
	// Publish and Subscribe are the allowed subjects. Deny are the subjects that Publish would
	// allow and that are not. {{name()}} stands for the name of the user.
	Publish, Deny, Subscribe []string
	// Answers reports whether a user may answer each request that it gets once.
	Answers bool
}

// inbox is the subject on which a user gets answers. Each user has its own, so that no user reads
// the answers to another one. The client needs an option for it, because its default is the same
// for all.
const inbox = "_INBOX.{{name()}}.>"

// answerWithin bounds the delay of an answer. A gateway waits for a result for at most five
// minutes.
const answerWithin = 6 * time.Minute

// fixed are the streams that agents use and must not make, change or remove. Agents may make the
// logs of swarms only. The name of a stream is one token of a subject, and a wildcard matches a
// whole token, so the logs cannot be allowed by a prefix. Instead all other streams are denied.
var fixed = slices.Concat(levelsCPU, levelsGPU, []string{
	"EXO_JOBS_CPU", "EXO_JOBS_GPU", "EXO_RESULTS", "EXO_DEAD", "EXO_SCHED", "EXO_WAIT", "EXO_JOBLOGS", "EXO_PUSH",
	"EXO_AUDIT", "EXO_DECISIONS", "KV_EXO_LEASES", "KV_EXO_SWARMS", "KV_EXO_CANCEL", "KV_EXO_CONTROL",
	"KV_EXO_AGENTS", "KV_EXO_CRON", "KV_EXO_TENANTS", "OBJ_EXO_OBJECTS",
})

// The streams of the levels that a job may ask for. A CPU agent makes them, for the first job of a
// level.
var (
	levelsCPU = []string{"EXO_JOBS_CPU_MEMORY", "EXO_JOBS_CPU_ONE", "EXO_JOBS_CPU_THREE", "EXO_JOBS_CPU_FIVE"}
	levelsGPU = []string{"EXO_JOBS_GPU_MEMORY", "EXO_JOBS_GPU_ONE", "EXO_JOBS_GPU_THREE", "EXO_JOBS_GPU_FIVE"}
)

// purged are the fixed streams that agents purge: of jobs that have ended, moved or were withdrawn,
// and of objects. The body of a request selects the messages, which permissions cannot see, so an
// agent that may purge one job may purge all.
var purged = slices.Concat(levelsCPU, levelsGPU,
	[]string{"EXO_JOBS_CPU", "EXO_JOBS_GPU", "EXO_SCHED", "EXO_WAIT", "OBJ_EXO_OBJECTS"})

// served are the fixed streams that GPU agents read by consumers: the records of swarms, the
// leases, the registry, the jobs of pool gpu with their cancellations, pauses and limits, and
// objects.
var served = slices.Concat(levelsGPU, []string{
	"EXO_JOBS_GPU", "KV_EXO_LEASES", "KV_EXO_SWARMS", "KV_EXO_CANCEL", "KV_EXO_CONTROL", "KV_EXO_AGENTS",
	"KV_EXO_TENANTS", "OBJ_EXO_OBJECTS",
})

// fetched are the fixed streams from which GPU agents get single messages: also the results,
// because the first result of a job is final, and the last decision that a swarm has emitted.
var fetched = append([]string{"EXO_RESULTS", "EXO_DECISIONS"}, served...)

// each returns a pattern with each of the names, but without some.
func each(pattern string, names []string, but ...string) (all []string) {
	for _, n := range names {
		if !slices.Contains(but, n) {
			all = append(all, fmt.Sprintf(pattern, n))
		}
	}
	return all
}

// reads are the requests to JetStream that change nothing, and whose answers go to the requester
// only.
var reads = []string{
	"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.*",
	"$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*",
}

// elections is the subject on which servers announce new leaders of streams. An account without
// streams gets no such messages.
const elections = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*"

// asked are the questions to agents that change nothing. Every agent that is asked may answer.
var asked = []string{"exo.running.*", "exo.agent.telemetry", "exo.agent.view.*"}

// told are the subjects on which the cluster publishes the progress and the end of jobs.
var told = []string{"exo.progress.*", "exo.done.*", "exo.joblog.*"}

// Roles returns all roles. TestRoles executes all operations under each role, and so shows that a
// role has the permissions that it needs and no others. The caller may change the result.
func Roles() []Role {
	// A CPU agent executes jobs of all tenants, so it may write results and dead letters of any
	// job. It may not change a stream but the logs of swarms, though it makes the streams of
	// levels, nor remove the consumers that all agents share.
	return []Role{{
		Name: Agent, Account: clusterAccount,
		Does: "for CPU agents: executes jobs, answers requests, feeds swarms, and keeps leases, logs and objects",
		Publish: slices.Concat(reads, []string{
			"$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.*.*",
			"$JS.API.CONSUMER.MSG.NEXT.*.*",
			"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*",
			"$JS.API.STREAM.MSG.DELETE.EXO_WAIT", "$JS.API.STREAM.MSG.DELETE.EXO_RESULTS",
			"$JS.API.STREAM.MSG.DELETE.EXO_DEAD",
			"$JS.ACK.>", "$JS.FC.>",
			"exo.job.>", "exo.sched.>", "exo.wait.>", "exo.edge.>", "exo.fired.>", "exo.res.*", "exo.dead.>",
			"exo.progress.*", "exo.running.*", "exo.joblog.*", "exo.log.>", "exo.push.*", "exo.out.>", "exo.rows.*",
			"$KV.EXO_AGENTS.>", "$KV.EXO_CANCEL.>", "$KV.EXO_CRON.>", "$KV.EXO_LEASES.>", "$KV.EXO_SWARMS.>",
			"$KV.EXO_TENANTS.>", "$O.EXO_OBJECTS.>",
		}),
		Deny: slices.Concat(each("$JS.API.STREAM.CREATE.%s", fixed, slices.Concat(levelsCPU, levelsGPU)...),
			each("$JS.API.STREAM.UPDATE.%s", fixed),
			each("$JS.API.STREAM.DELETE.%s", fixed),
			each("$JS.API.STREAM.PURGE.%s", fixed, purged...),
			each("$JS.API.CONSUMER.DELETE.%s.*", slices.Concat(levelsCPU, levelsGPU)), []string{
				"$JS.API.CONSUMER.DELETE.EXO_JOBS_CPU.*", "$JS.API.CONSUMER.DELETE.EXO_JOBS_GPU.*",
				"$JS.API.CONSUMER.DELETE.EXO_SCHED.*",
			}),
		Subscribe: slices.Concat([]string{
			inbox, "exo.wake.>", "exo.api.>", "exo.tenant.>", "exo.agent.drain.*", "exo.agent.debug.*",
			elections,
		}, asked, told),
		Answers: true,
	}, {
		// A GPU agent needs the logs, records and leases of swarms, and the jobs of pool gpu with
		// their results and objects. It reads no other fixed stream: the requests for a message, a
		// direct get and a consumer are denied for each of them. Its worker leaves schedules,
		// delayed jobs and jobs that wait for others to CPU agents, so it submits no job. It asks a
		// gateway to submit the jobs of rules of swarms, which are in the records of the swarms.
		Name: GPUAgent, Account: clusterAccount,
		Does: "for GPU agents: serves swarms and keeps their leases and logs; executes jobs of pool gpu, with " +
			"their results and objects; asks for the jobs of rules of swarms; reads no jobs of pool cpu, dead " +
			"letters or schedules",
		Publish: slices.Concat(reads, []string{
			"$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.*.*",
			"$JS.API.CONSUMER.MSG.NEXT.*.*",
			"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*",
			"$JS.ACK.>", "$JS.FC.>", "exo.log.>", "exo.res.*", "exo.dead.gpu.>", "exo.progress.*", "exo.joblog.*",
			"exo.decision.*.*", "exo.api.react",
			"$KV.EXO_AGENTS.>", "$KV.EXO_LEASES.>", "$KV.EXO_SWARMS.>", "$KV.EXO_TENANTS.gpu.>", "$O.EXO_OBJECTS.>",
		}),
		Deny: slices.Concat(each("$JS.API.STREAM.CREATE.%s", fixed), each("$JS.API.STREAM.UPDATE.%s", fixed),
			each("$JS.API.STREAM.DELETE.%s", fixed),
			each("$JS.API.STREAM.PURGE.%s", fixed, append(levelsGPU[:len(levelsGPU):len(levelsGPU)], "EXO_JOBS_GPU",
				"OBJ_EXO_OBJECTS")...),
			each("$JS.API.STREAM.MSG.GET.%s", fixed, fetched...), each("$JS.API.DIRECT.GET.%s", fixed, fetched...),
			each("$JS.API.DIRECT.GET.%s.>", fixed, fetched...),
			each("$JS.API.CONSUMER.CREATE.%s", fixed, served...),
			each("$JS.API.CONSUMER.CREATE.%s.>", fixed, served...),
			each("$JS.API.CONSUMER.DELETE.%s.*", fixed, served...),
			each("$JS.API.CONSUMER.MSG.NEXT.%s.*", fixed, served...),
			// all workers share these consumers
			each("$JS.API.CONSUMER.DELETE.%s.*", append(levelsGPU[:len(levelsGPU):len(levelsGPU)], "EXO_JOBS_GPU"))),
		Subscribe: []string{
			inbox, "exo.wake.gpu.>", "exo.running.gpu", "exo.agent.drain.*", "exo.agent.debug.*",
			"exo.agent.telemetry", "exo.agent.view.*", "exo.agent.model.*", elections,
		},
		Answers: true,
	}, {
		// A submitter reaches the gateways only. The import of its account adds the name of the
		// tenant to each subject.
		Name: Submitter, Account: tenantPrefix,
		Does: "for a tenant: submits, lists, cancels and retries its jobs, reads their results and logs, and " +
			"keeps schedules, all through agents",
		Publish: []string{
			"exo.api.submit", "exo.api.result.*", "exo.api.find.*", "exo.api.list.*", "exo.api.logs.*",
			"exo.api.cancel.*", "exo.api.retry.*", "exo.api.cron.>",
		},
		Subscribe: []string{inbox},
	}, {
		// An operator may do everything in the account of the cluster, but remove records of the
		// audit. The system account, which could change accounts, stays out of reach.
		Name: Operator, Account: clusterAccount,
		Does: "for operators: all except the system account: streams, queues, pauses, limits, dead letters, " +
			"agents, jobs of all tenants; only they write to the audit",
		Publish: []string{">"}, Subscribe: []string{">"},
		Deny: []string{
			"$JS.API.STREAM.DELETE.EXO_AUDIT", "$JS.API.STREAM.PURGE.EXO_AUDIT",
			"$JS.API.STREAM.MSG.DELETE.EXO_AUDIT",
		},
	}, {
		// A viewer has no account with streams. Its requests are exports of the cluster's account,
		// so it can make no consumer, whose messages could be sent to a subject of its choice.
		Name: Viewer, Account: viewerAccount,
		Does: "for observers: reads jobs, results, logs of jobs and of swarms, queues, dead letters, limits, " +
			"schedules and agents of all tenants, and changes nothing",
		Publish:   slices.Concat(reads, asked),
		Subscribe: slices.Concat([]string{inbox, elections}, told),
	}, {
		// The pusher sends new claims of accounts to running servers, and can do nothing else with
		// the system account. The server accepts only claims that the operator has signed.
		Name: Pusher, Account: systemAccount,
		Does:      "for `exoswarm auth` alone: hands accounts to running servers",
		Publish:   []string{"$SYS.REQ.CLAIMS.UPDATE"},
		Subscribe: []string{inbox},
	}}
}

// RoleNamed returns the role with a name, or an error that lists the names.
func RoleNamed(name string) (Role, error) {
	var names []string
	for _, r := range Roles() {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return Role{}, invalid("role %q: use one of %s", name, strings.Join(names, ", "))
}

// template returns the permissions as they are in the claims of an account.
func (r Role) template() jwt.UserPermissionLimits {
	l := jwt.NewUserScope().Template
	l.Pub = jwt.Permission{Allow: r.Publish, Deny: r.Deny}
	l.Sub = jwt.Permission{Allow: r.Subscribe}
	if r.Answers {
		l.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: answerWithin}
	}
	return l
}
