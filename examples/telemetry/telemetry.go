// Package telemetry is the example swarm and its data: eight counters of a Linux machine, recorded by
// examples/telemetry/record while load came and went.
package telemetry

import "embed"

// Files holds swarm.yaml, and the series under data.
//
//go:embed swarm.yaml data/*.csv
var Files embed.FS
