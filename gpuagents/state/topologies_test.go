package state

import (
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// TestLibraries: each topology of the table has what opens its states.
func TestLibraries(t *testing.T) {
	for _, topology := range swarm.Topologies() {
		if libraries[topology.Name].open == nil {
			t.Errorf("nothing opens the topology %s", topology.Name)
		}
		if got := libraries[topology.Name].peers != nil; got != topology.Shared {
			t.Errorf("the topology %s has memory on further devices: %v, want %v", topology.Name, got, topology.Shared)
		}
	}
	if all := swarm.Topologies(); len(libraries) != len(all) {
		t.Errorf("%d topologies are opened, and there are %d", len(libraries), len(all))
	}
}
