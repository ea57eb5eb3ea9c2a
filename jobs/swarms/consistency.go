package swarms

import (
	"encoding/json"
)

// Consistency is how safely the logs of a swarm are stored. It is part of the specification of the
// swarm. The zero value means the default of the cluster.
type Consistency struct {
	// Replicas is the number of servers that store each log: 1, 3 or 5; 0 means as many as the
	// streams of the cluster have.
	Replicas int `json:"replicas,omitempty"`
	// Durability is Synced or Fast; empty means Synced.
	Durability string `json:"durability,omitempty"`
}

// Values of Consistency.Durability.
const (
	// Synced acknowledges an entry as the server is configured: when it is on the disk of the
	// server, or of most servers of a cluster, unless the server was started not to sync. A client
	// cannot ask a server for that setting.
	Synced = "synced"
	// Fast acknowledges an entry before it is on the disk. A server that is killed may lose
	// acknowledged entries. It is for one replica only, because a server syncs all replicated
	// streams as it is configured.
	Fast = "fast"
)

// Validate checks the fields. The error names the field, its value and the cure.
func (c Consistency) Validate() error {
	switch c.Replicas {
	case 0, 1, 3, 5:
	default:
		return invalid("replicas %d: use 1, 3 or 5", c.Replicas)
	}
	switch {
	case c.Durability != "" && c.Durability != Synced && c.Durability != Fast:
		return invalid("durability %.100q: use %s or %s", c.Durability, Synced, Fast)
	case c.Durability == Fast && c.Replicas > 1:
		return invalid("durability %s with %d replicas: the NATS server syncs replicated streams as it "+
			"was started, and cannot be told otherwise for one of them: use 1 replica, or leave durability out",
			Fast, c.Replicas)
	}
	return nil
}

// ConsistencyOf reads the consistency from a specification in JSON. It ignores all other fields.
func ConsistencyOf(spec json.RawMessage) (c Consistency, err error) {
	if len(spec) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(spec, &c); err != nil {
		return c, invalid("spec: %v", err)
	}
	return c, c.Validate()
}
