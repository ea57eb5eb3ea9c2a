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
		if shared := libraries[topology.Name].peers != nil; shared != topology.Shared {
			t.Errorf("the topology %s has memory on further devices: %v, want %v", topology.Name, shared, topology.Shared)
		}
	}
	if all := swarm.Topologies(); len(libraries) != len(all) {
		t.Errorf("%d topologies are opened, and there are %d", len(libraries), len(all))
	}
}
