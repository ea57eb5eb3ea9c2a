package swarms

import (
	"encoding/json"
)

// Consistency is how safely the logs of a swarm are kept. A swarm's spec has it; the zero value
// leaves it to the cluster.
type Consistency struct {
	// Replicas is on how many servers each log is kept: 1, 3 or 5; 0: as many as the cluster's
	// streams have.
	Replicas int `json:"replicas,omitempty"`
	// Durability is Synced, Fast, or empty, which stands for Synced.
	Durability string `json:"durability,omitempty"`
}

// Values of Consistency.Durability.
const (
	// Synced acknowledges an entry as the server is configured: when it is on the disk of the
	// server, and of most servers of several, unless the server was started not to sync. A client
	// cannot ask a server how it was started.
	Synced = "synced"
	// Fast acknowledges an entry before it is on the disk. A server that is killed may lose entries
	// that were acknowledged. It is for one replica: a server that replicates a stream syncs it as
	// the server is configured, and cannot be told otherwise for one stream.
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

// ConsistencyOf reads it from a swarm's spec as JSON, of which it looks at nothing else.
func ConsistencyOf(spec json.RawMessage) (c Consistency, err error) {
	if len(spec) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(spec, &c); err != nil {
		return c, invalid("spec: %v", err)
	}
	return c, c.Validate()
}
