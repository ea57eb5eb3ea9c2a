package gateway

import (
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestAdmitLeavesTheCaller: a submission that becomes one of a tenant shares nothing with the
// caller's.
func TestAdmitLeavesTheCaller(t *testing.T) {
	j := plain("a", "p", "q").WithDefaults()
	got, err := owner("acme").admit(j)
	if err != nil || !slices.Equal(got.After, []string{"acme--p", "acme--q"}) {
		t.Fatalf("%v, %v", got.After, err)
	}
	if !slices.Equal(j.After, []string{"p", "q"}) || j.ID != "a" || j.Tenant != jobs.DefaultTenant {
		t.Errorf("the caller's job is changed: %+v", j)
	}
}
