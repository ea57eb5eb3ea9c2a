package cpuagents

import (
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/binding"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/jobs"
)

// What a job may use is bound to its tenant, and checked where it is used. The tenant of a job is that of the subject on which it stood: the queue
// settles a job that says otherwise, and a tenant's login cannot publish to the subject of another. Jobs without a tenant are the operator's.

// of returns a Streamer with what a job may use.
func (s *Streamer) of(job jobs.Job) *Streamer {
	own := *s
	own.owner = jobs.OwnerOf(job)
	if s.Files != nil {
		own.Files = s.Files.For(own.owner)
	}
	own.Egress = s.Egress.For(job.Tenant)
	own.Secrets = s.Secrets.For(job.Tenant)
	return &own
}

// Streams are streams of the account by tenant.
type Streams map[files.Root]bool

// ParseStreams reads tenant=TENANT,name=STREAM.
func ParseStreams(list []string) (Streams, error) {
	all := Streams{}
	for _, text := range list {
		tenant, rest, ok := binding.Cut(text)
		name, named := strings.CutPrefix(rest, "name=")
		if !ok || !named || name == "" || binding.Check(tenant) != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "--stream %q: write tenant=TENANT,name=STREAM", text)
		}
		all[files.Root{Tenant: tenant, Name: name}] = true
	}
	return all, nil
}

// check returns why a job may not use a stream.
func (s Streams) check(of jobs.Owner, stream string) error {
	if of.Shared() || s[files.Root{Tenant: of.Tenant, Name: stream}] || s[files.Root{Tenant: binding.Every, Name: stream}] {
		return nil
	}
	return jobs.Errorf(jobs.CodeInvalid, "this agent has no stream %s for tenant %s: start it with --stream tenant=%s,name=%s", fault.Quote(stream), of.Tenant, of.Tenant, fault.Quote(stream))
}
