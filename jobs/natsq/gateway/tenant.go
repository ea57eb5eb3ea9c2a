package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// owner is whose requests the gateway answers: a tenant, or "" for somebody who may do everything.
//
// A tenant's jobs and schedules have ids of its own, which begin with its name and "--" (exoswarm
// auth has no tenant whose name would make that unclear). Results, marks and cancellations are
// known by the id alone, so by it a tenant reaches its own and nobody else's, and cannot take the
// id of another's job before that is submitted.
type owner string

// caller takes the subject of a request apart. The tenant in it comes from the server, which takes
// it from the account of whoever asks; what the request itself says is not believed.
func caller(subject string) (from owner, what string) {
	if rest, ok := strings.CutPrefix(subject, tenantPrefix); ok {
		tenant, what, _ := strings.Cut(rest, ".")
		return owner(tenant), what
	}
	return "", strings.TrimPrefix(subject, apiPrefix)
}

// own is an id as the queue knows it.
func (o owner) own(id string) string {
	if prefix := string(o) + "--"; o != "" && id != "" && !strings.HasPrefix(id, prefix) {
		return prefix + id
	}
	return id
}

// admit makes a submission one of the tenant. It has no spec_ref, which may name anybody's object:
// the schema of submissions knows none.
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

// check refuses a job of somebody else; that there is one is not said. Its id says whose it is,
// unless an operator made it up.
func (o owner) check(j jobs.Job) error {
	if o == "" || j.Tenant == string(o) {
		return nil
	}
	return fmt.Errorf("job %s is not queued: %w", j.ID, jobs.ErrNotFound)
}

// schedule makes a schedule one of the tenant.
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

// mine says whether a schedule is the tenant's.
func (o owner) mine(s jobs.Schedule) bool {
	return o == "" || s.Job.Tenant == string(o) && strings.HasPrefix(s.Name, string(o)+"--")
}
