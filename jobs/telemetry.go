package jobs

import "time"

// Telemetry is the answer of an agent to a question for its numbers. An agent computes it only when
// somebody asks.
type Telemetry struct {
	Version int       `json:"v"`
	Agent   string    `json:"agent"` // its name
	At      time.Time `json:"at"`    // by its clock
	// Samples are the samples of the requested metrics, in the order of their names.
	Samples []Sample `json:"samples"`
	// Omitted is how many samples did not fit into the message.
	Omitted int `json:"omitted,omitempty"`
	// Twins is how many other processes answered under the same name. The one that asks counts them.
	Twins int `json:"twins,omitempty"`
}

// Sample is a value of a metric: a counter, a gauge, or NAME_sum and NAME_count of a histogram.
type Sample struct {
	Name   string            `json:"n"`
	Labels map[string]string `json:"l,omitempty"`
	Value  float64           `json:"v"`
}
