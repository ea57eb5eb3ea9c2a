// Package telemetry is the example swarm and its data: two weeks of six series of a service and its
// machine room, with labelled incidents. Command generate makes them.
package telemetry

import "embed"

// Files holds swarm.yaml, the series under data, and incidents.json with the labels of the series.
//
//go:embed swarm.yaml incidents.json data/*.csv
var Files embed.FS
