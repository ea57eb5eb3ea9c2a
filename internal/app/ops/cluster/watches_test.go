package cluster

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
)

// TestProgress: what a detector reports arrives in the members that are shown.
func TestProgress(t *testing.T) {
	sent := cpuagents.DetectorProgress{
		Rows: 9, Decisions: 5, LatencyP50: 1, LatencyP99: 2, Unreachable: "kafka", Waiting: "a receiver",
		Dropped: cpuagents.Dropped{Late: 1, Duplicates: 2}, Found: &explain.Found{Name: "pumps"},
	}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	var got progress
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("json.Unmarshal: %v, want no error", err)
	}
	want := progress{
		Rows: 9, Decisions: 5, Late: 1, Duplicates: 2, LatencyP50: 1, LatencyP99: 2, Unreachable: "kafka",
		Waiting: "a receiver", Found: &explain.Found{Name: "pumps"},
	}
	if !reflect.DeepEqual(got, want) || got.valid() != 6 {
		t.Errorf("progress %+v with %d valid rows, want %+v with 6", got, got.valid(), want)
	}
	if kindDetector != cpuagents.KindDetector {
		t.Errorf("the kind of detectors is %q, want %q", kindDetector, cpuagents.KindDetector)
	}
}
