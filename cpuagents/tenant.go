package cpuagents

import (
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/jobs"
)

// A job uses only the resources of its tenant, which are checked where they are opened. The tenant
// of a job is the tenant of the subject on which the job was queued: the queue settles a job that
// states another one, and a tenant's login cannot publish to the subject of another tenant. Jobs
// without a tenant belong to the operator.

// of returns a view of the Streamer with the resources that a job may use.
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

// Streams are the JetStream streams of the account that the jobs of a tenant may use.
type Streams map[files.Root]bool

// ParseStreams parses the streams of tenants, as operators write them: tenant=TENANT,name=STREAM.
func ParseStreams(list []string) (Streams, error) {
	all := Streams{}
	for _, text := range list {
		tenant, rest, ok := access.Cut(text)
		name, named := strings.CutPrefix(rest, "name=")
		if !ok || !named || name == "" || access.Check(tenant) != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "--stream %q: write tenant=TENANT,name=STREAM", text)
		}
		all[files.Root{Tenant: tenant, Name: name}] = true
	}
	return all, nil
}

// check returns an error if the jobs of an owner may not use a stream.
func (s Streams) check(of jobs.Owner, stream string) error {
	if of.Shared() || s[files.Root{Tenant: of.Tenant, Name: stream}] ||
		s[files.Root{Tenant: access.Every, Name: stream}] {
		return nil
	}
	return jobs.Errorf(
		jobs.CodeInvalid, "this agent has no stream %s for tenant %s: start it with --stream tenant=%s,name=%s",
		access.Quote(stream), of.Tenant, of.Tenant, access.Quote(stream),
	)
}
