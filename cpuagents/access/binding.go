package access

// This file reads what an operator binds to a tenant on the command line of an agent: a folder, a
// host, a stream, a secret.
//
//	TEXT                   for jobs without a tenant
//	tenant=TENANT,TEXT     for the jobs of a tenant
//	tenant=*,TEXT          for all jobs

import (
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// Every stands for all tenants, and for jobs without one.
const Every = "*"

// Cut takes the tenant off a binding; ok is false for one without.
func Cut(text string) (tenant, rest string, ok bool) {
	after, ok := strings.CutPrefix(text, "tenant=")
	if !ok {
		return "", text, false
	}
	tenant, rest, ok = strings.Cut(after, ",")
	return tenant, rest, ok
}

// Check returns what is wrong with the tenant of a binding.
func Check(tenant string) error {
	if tenant == Every {
		return nil
	}
	return jobs.CheckID("tenant", tenant)
}

// Holds reports whether a binding to a tenant is for a job of another, which may be empty or
// jobs.DefaultTenant for none.
func Holds(bound, tenant string) bool {
	if tenant == jobs.DefaultTenant {
		tenant = ""
	}
	return bound == Every || bound == tenant
}
