package state

import (
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// TestOpeners: each topology of the table has what opens its states.
func TestOpeners(t *testing.T) {
	for _, topology := range swarm.Topologies() {
		if openers[topology.Name] == nil {
			t.Errorf("nothing opens the topology %s", topology.Name)
		}
	}
	if all := swarm.Topologies(); len(openers) != len(all) {
		t.Errorf("%d topologies are opened, and there are %d", len(openers), len(all))
	}
}
