package jobs

// Owner is the job that an object in the queue's store belongs to. The object stays as long as
// anything is known of the job: while it waits or runs, while its dead letter or its result is
// kept, and while its swarm is there.
type Owner struct {
	// Tenant has names of its own: objects of two tenants never meet, and one cannot name
	// another's. Empty and DefaultTenant are the same.
	Tenant string `json:"tenant,omitempty"`
	// Job is the id; empty for an object that stays until somebody deletes it.
	Job string `json:"job,omitempty"`
}

// OwnerOf returns the owner of what a job writes.
func OwnerOf(j Job) Owner { return Owner{Tenant: j.Tenant, Job: j.ID} }

// Shared reports whether the owner has no names of its own.
func (o Owner) Shared() bool { return o.Tenant == "" || o.Tenant == DefaultTenant }

// Named returns name as the store knows it.
func (o Owner) Named(name string) string {
	if o.Shared() {
		return name
	}
	return o.Tenant + "/" + name
}
