package arrayset

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels/settest"
)

// TestSet: the set passes the tests of all sets of kernels.
func TestSet(t *testing.T) {
	set := settest.Set{
		Folder: "arrayset", Count: 4*len(Elements) + 2 + 2*4 + 1, Compiled: ptxTexts.Names(ptxFile), PTX: PTX,
	}
	t.Run("Signatures", set.Signatures)
	t.Run("Compile", set.Compile)
}
