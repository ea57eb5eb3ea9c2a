// Package telemetry is the example swarm and its data: eight counters of a Linux machine, recorded by
// examples/telemetry/record while load came and went.
package telemetry

import "embed"

// Files holds swarm.yaml, the series under data, and incidents.json with the labels of the series.
//
//go:embed swarm.yaml incidents.json data/*.csv
var Files embed.FS
