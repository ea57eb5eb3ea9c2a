package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// owner is the tenant of a request, or "" for a client that may do everything.
//
// The ids of the jobs and schedules of a tenant begin with its name and "--". exoswarm auth refuses
// names of tenants with which that would be ambiguous. Results, progress and cancellations are
// found by the id alone. So a tenant reaches its own jobs and no others, and cannot use the id of a
// job of another tenant before that tenant submits it.
type owner string

// caller splits the subject of a request into its owner and the rest. The server sets the tenant in
// the subject from the account of the client, so it can be trusted.
func caller(subject string) (from owner, what string) {
	if rest, ok := strings.CutPrefix(subject, tenantPrefix); ok {
		tenant, what, _ := strings.Cut(rest, ".")
		return owner(tenant), what
	}
	return "", strings.TrimPrefix(subject, apiPrefix)
}

// own returns an id as the queue knows it: with the prefix of the tenant, which a client may omit.
func (o owner) own(id string) string {
	if prefix := string(o) + "--"; o != "" && id != "" && !strings.HasPrefix(id, prefix) {
		return prefix + id
	}
	return id
}

// admit gives a submission the tenant and the ids of its owner, and validates it again. A
// submission has no spec_ref, which could name an object of another tenant; the schema of
// submissions excludes it.
func (o owner) admit(j jobs.Job) (jobs.Job, error) {
	if o == "" {
		return j, nil
	}
	if j.Tenant != jobs.DefaultTenant && j.Tenant != string(o) {
		return j, jobs.Errorf(jobs.CodeInvalid, "job %s is for tenant %s, and this login is of tenant %s: leave the "+
			"tenant out", j.ID, j.Tenant, o)
	}
	j.Tenant, j.ID, j.After = string(o), o.own(j.ID), slices.Clone(j.After) // the caller keeps its own
	for i, p := range j.After {
		j.After[i] = o.own(p)
	}
	return j, j.Validate()
}

// check fails with jobs.ErrNotFound for a job of another tenant, so that its existence is not
// revealed. Such a job can have an id of this tenant only if an operator has submitted it.
func (o owner) check(j jobs.Job) error {
	if o == "" || j.Tenant == string(o) {
		return nil
	}
	return fmt.Errorf("job %s is not queued: %w", j.ID, jobs.ErrNotFound)
}

// schedule gives a schedule the tenant and the name of its owner, and validates it again.
func (o owner) schedule(s jobs.Schedule) (jobs.Schedule, error) {
	if o == "" {
		return s, nil
	}
	if t := s.Job.Tenant; t != "" && t != jobs.DefaultTenant && t != string(o) {
		return s, jobs.Errorf(jobs.CodeInvalid, "schedule %s is for tenant %s, and this login is of tenant %s: "+
			"leave the tenant out", s.Name, t, o)
	}
	s.Job.Tenant, s.Name = string(o), o.own(s.Name)
	return s, s.Validate()
}

func (o owner) mine(s jobs.Schedule) bool {
	return o == "" || s.Job.Tenant == string(o) && strings.HasPrefix(s.Name, string(o)+"--")
}
