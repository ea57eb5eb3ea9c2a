package auth

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
)

// Names of the accounts. That of a tenant is tenantPrefix and its name.
const (
	systemAccount  = "system"
	clusterAccount = "cluster"
	viewerAccount  = "viewers"
	tenantPrefix   = "tenant-"
)

// The roles.
const (
	Agent     = "agent"    // of CPU agents
	GPUAgent  = "gpuagent" // of GPU agents
	Submitter = "submitter"
	Operator  = "operator"
	Viewer    = "viewer"
	// Pusher is the role of the user that hands accounts to running servers; people and agents do
	// not get it.
	Pusher = "pusher"
)

// Role is what a user may do. It stands in the account as the template of a signing key, not in the
// users, so a change of this table reaches users that exist.
type Role struct {
	Name    string
	Account string // in which its users are; tenantPrefix for that of their tenant
	Does    string // for people
	// Publish and Subscribe list the subjects allowed, Deny what of Publish is not. {{name()}}
	// stands for the user's name.
	Publish, Deny, Subscribe []string
	// Answers says that a user may answer requests that reach it, each once.
	Answers bool
}

// inbox is where a user gets answers. Everybody has one of their own, so that nobody hears the
// answers of others; the client must be told of it, because its default is one for all.
const inbox = "_INBOX.{{name()}}.>"

// answerWithin bounds how late an answer may come: the gateway waits up to five minutes for a
// result, and one minute more.
const answerWithin = 6 * time.Minute

// fixed are the streams that agents use and must not make, change or remove. Only the logs of
// swarms are theirs to make, and as the name of a stream is one token, which a wildcard matches as
// a whole or not at all, those cannot be allowed by name.
var fixed = []string{
	"EXO_JOBS_CPU", "EXO_JOBS_GPU", "EXO_RESULTS", "EXO_DEAD", "EXO_SCHED", "EXO_WAIT", "EXO_JOBLOGS", "EXO_PUSH",
	"KV_EXO_LEASES", "KV_EXO_SWARMS", "KV_EXO_CANCEL", "KV_EXO_CONTROL", "KV_EXO_AGENTS", "KV_EXO_CRON",
	"KV_EXO_TENANTS", "OBJ_EXO_OBJECTS",
}

// purged are those of them that agents purge: jobs that are done, that wait no longer or are
// withdrawn, and objects. The server knows which messages a purge is for by its body, so who may
// purge one job may purge all.
var purged = []string{"EXO_JOBS_CPU", "EXO_JOBS_GPU", "EXO_SCHED", "EXO_WAIT", "OBJ_EXO_OBJECTS"}

// served are those of them that GPU agents read: what swarms there are, and who serves them.
var served = []string{"KV_EXO_LEASES", "KV_EXO_SWARMS", "KV_EXO_AGENTS"}

func each(pattern string, names []string, but ...string) (all []string) {
	for _, n := range names {
		if !slices.Contains(but, n) {
			all = append(all, fmt.Sprintf(pattern, n))
		}
	}
	return all
}

// reads are the questions to JetStream that change nothing and whose answer goes to whoever asks.
var reads = []string{
	"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.*",
	"$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*",
}

// elections is where servers tell their account of new leaders; in an account without streams there
// is nothing to hear.
const elections = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*"

// told are the subjects on which the cluster tells what happens to jobs.
var told = []string{"exo.progress.*", "exo.done.*", "exo.joblog.*"}

// Roles lists the roles. What is in it was found by running everything under each; TestRoles does
// so again.
func Roles() []Role {
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
		Deny: slices.Concat(each("$JS.API.STREAM.CREATE.%s", fixed), each("$JS.API.STREAM.UPDATE.%s", fixed),
			each("$JS.API.STREAM.DELETE.%s", fixed),
			each("$JS.API.STREAM.PURGE.%s", fixed, purged...),
			[]string{
				"$JS.API.CONSUMER.DELETE.EXO_JOBS_CPU.*", "$JS.API.CONSUMER.DELETE.EXO_JOBS_GPU.*",
				"$JS.API.CONSUMER.DELETE.EXO_SCHED.*",
			}),
		Subscribe: slices.Concat([]string{
			inbox, "exo.wake.>", "exo.api.>", "exo.tenant.>", "exo.agent.drain.*",
			"exo.running.*", elections,
		}, told),
		Answers: true,
	}, {
		Name: GPUAgent, Account: clusterAccount,
		Does: "for GPU agents: serves swarms and keeps their leases and logs; reads no jobs, results, objects, " +
			"limits or schedules",
		Publish: slices.Concat(reads, []string{
			"$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.*.*",
			"$JS.API.CONSUMER.MSG.NEXT.*.*",
			"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*",
			"$JS.ACK.>", "$JS.FC.>", "exo.log.>", "$KV.EXO_AGENTS.>", "$KV.EXO_LEASES.>", "$KV.EXO_SWARMS.>",
		}),
		Deny: slices.Concat(each("$JS.API.STREAM.CREATE.%s", fixed), each("$JS.API.STREAM.UPDATE.%s", fixed),
			each("$JS.API.STREAM.DELETE.%s", fixed), each("$JS.API.STREAM.PURGE.%s", fixed),
			each("$JS.API.STREAM.MSG.GET.%s", fixed, served...), each("$JS.API.DIRECT.GET.%s", fixed, served...),
			each("$JS.API.DIRECT.GET.%s.>", fixed, served...),
			each("$JS.API.CONSUMER.CREATE.%s", fixed, served...),
			each("$JS.API.CONSUMER.CREATE.%s.>", fixed, served...),
			each("$JS.API.CONSUMER.DELETE.%s.*", fixed, served...),
			each("$JS.API.CONSUMER.MSG.NEXT.%s.*", fixed, served...)),
		Subscribe: []string{inbox, "exo.agent.drain.*", elections},
	}, {
		Name: Submitter, Account: tenantPrefix,
		Does: "for a tenant: submits, lists, cancels and retries its jobs, reads their results and logs, and " +
			"keeps schedules, all through agents",
		Publish: []string{
			"exo.api.submit", "exo.api.result.*", "exo.api.find.*", "exo.api.list.*", "exo.api.logs.*",
			"exo.api.cancel.*", "exo.api.retry.*", "exo.api.cron.>",
		},
		Subscribe: []string{inbox},
	}, {
		Name: Operator, Account: clusterAccount,
		Does: "for operators: all except the system account: streams, queues, pauses, limits, dead letters, " +
			"agents, jobs of all tenants",
		Publish: []string{">"}, Subscribe: []string{">"},
	}, {
		Name: Viewer, Account: viewerAccount,
		Does: "for observers: reads jobs, results, logs of jobs, queues, dead letters, limits, schedules and " +
			"agents of all tenants, and changes nothing",
		Publish:   slices.Concat(reads, []string{"exo.running.*"}),
		Subscribe: slices.Concat([]string{inbox, elections}, told),
	}, {
		Name: Pusher, Account: systemAccount,
		Does:      "for `exoswarm auth` alone: hands accounts to running servers",
		Publish:   []string{"$SYS.REQ.CLAIMS.UPDATE"},
		Subscribe: []string{inbox},
	}}
}

// RoleNamed finds a role for a user that is to be added.
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

// template is the role as the server knows it.
func (r Role) template() jwt.UserPermissionLimits {
	l := jwt.NewUserScope().Template
	l.Pub = jwt.Permission{Allow: r.Publish, Deny: r.Deny}
	l.Sub = jwt.Permission{Allow: r.Subscribe}
	if r.Answers {
		l.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: answerWithin}
	}
	return l
}
