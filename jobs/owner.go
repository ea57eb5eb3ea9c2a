package jobs

// Owner is the job that an object in the queue's store belongs to. The object stays as long as
// anything is known of the job: while it waits or runs, while its dead letter or its result is
// kept, and while its swarm is there.
type Owner struct {
	// Tenant separates names: objects of two tenants never have the same name, and a tenant cannot
	// name another tenant's objects. Empty and DefaultTenant are the same.
	Tenant string `json:"tenant,omitempty"`
	// Job is the id; empty for an object that stays until it is deleted.
	Job string `json:"job,omitempty"`
}

// OwnerOf returns the owner of what a job writes.
func OwnerOf(j Job) Owner { return Owner{Tenant: j.Tenant, Job: j.ID} }

// Shared reports whether the owner uses the names that tenants without their own names share.
func (o Owner) Shared() bool { return o.Tenant == "" || o.Tenant == DefaultTenant }

// Named returns name as the store knows it.
func (o Owner) Named(name string) string {
	if o.Shared() {
		return name
	}
	return o.Tenant + "/" + name
}
