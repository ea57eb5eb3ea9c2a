package jobs

import "fmt"

// EveryTenant names the limits of all tenants without their own limits.
const EveryTenant = "*"

// Limits bound what a tenant takes of each pool. A nil field has the value of EveryTenant, and no
// limit if EveryTenant has none. 0 is no limit, whatever EveryTenant has.
type Limits struct {
	Version int `json:"v,omitempty"`
	// Weight is its share within a lane, 0.01 to 1000, where others have jobs too; 1 when it is nil
	// everywhere.
	Weight *float64 `json:"weight,omitempty"`
	// Rate is how many of its jobs begin a second, retries counted, 0.001 to 1,000,000, on average;
	// Burst how many may begin at once after a pause, 1 to 1,000,000, as many as in a second when
	// it is 0 or nil everywhere.
	Rate  *float64 `json:"rate,omitempty"`
	Burst *int     `json:"burst,omitempty"`
	// Concurrency is how many of its jobs run at a time, on all workers together, 1 to 10,000.
	Concurrency *int `json:"concurrency,omitempty"`
	// Queued is how many of its jobs may be in the queue, including running jobs, 1 to 100,000. A
	// submission over it fails with ErrFull.
	Queued *int `json:"queued,omitempty"`
}

// TenantLimits are the limits set for a tenant, or for EveryTenant.
type TenantLimits struct {
	Tenant string `json:"tenant"`
	Limits
	// Error is why its record, which another program wrote, is not followed.
	Error string `json:"error,omitempty"`
}

// Or fills in from d what l leaves open.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Version: Version, Weight: or(l.Weight, d.Weight), Rate: or(l.Rate, d.Rate), Burst: or(l.Burst, d.Burst),
		Concurrency: or(l.Concurrency, d.Concurrency), Queued: or(l.Queued, d.Queued),
	}
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Validate names the field that is out of range, its value and the cure.
func (l Limits) Validate() error {
	bad := func(field string, v any, cure string) error {
		return Errorf(CodeInvalid, "%s %s: %s", field, fmt.Sprint(v), cure)
	}
	count := func(field string, v *int, most int) error {
		if v != nil && (*v < 0 || *v > most) {
			return bad(field, *v, fmt.Sprintf("use 1 to %d, or 0 for no limit", most))
		}
		return nil
	}
	// Negated, so that what is not a number is refused.
	switch {
	case l.Version != Version:
		return Errorf(CodeVersion, "limits speak protocol version %d, this agent %d: update the older side", l.Version,
			Version)
	case l.Weight != nil && !(*l.Weight >= 0.01 && *l.Weight <= 1000):
		return bad("weight", *l.Weight, "use 0.01 to 1000")
	case l.Rate != nil && !(*l.Rate == 0 || *l.Rate >= 0.001 && *l.Rate <= 1e6):
		return bad("rate", *l.Rate, "use 0.001 to 1000000, or 0 for no limit")
	case l.Burst != nil && (*l.Burst < 0 || *l.Burst > 1e6):
		return bad("burst", *l.Burst, "use 1 to 1000000, or 0 for what begins in a second")
	}
	if err := count("concurrency", l.Concurrency, 10_000); err != nil {
		return err
	}
	return count("queued", l.Queued, 100_000)
}
