package swarmset

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels/settest"
)

// TestSet: the set passes the tests of all sets of kernels.
func TestSet(t *testing.T) {
	set := settest.Set{
		Folder: "swarmset", Count: 2*len(Widths) - 1 + 6 + 2*len(voteMost), Compiled: ptxTexts.Names(ptxFile), PTX: PTX,
	}
	t.Run("Signatures", set.Signatures)
	t.Run("Compile", set.Compile)
}
