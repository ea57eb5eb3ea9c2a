//go:build cuda

package bare

/*
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "faults.h"
*/
import "C"

import (
	_ "embed"
	"fmt"
	"unsafe"
)

//go:embed faults.ptx
var faults string

// The fault laboratory finds out what a driver does to a process whose kernel has failed: which
// contexts break, and what brings the GPU back. Each experiment needs a process, because some leave
// it unusable.

// FaultKinds are the ways to break a context: kernels of faults.cu.
var FaultKinds = []string{"illegal", "misaligned", "trapped", "asserted"}

// FaultStrategies are the ways to continue, by name:
//
//	alive      make another context beside the broken one
//	one        destroy the only context, make another
//	thread     the same, all of the broken context's life on a thread that has ended
//	wait       one, and three seconds between
//	two        a second context on the GPU is there too; both are destroyed
//	two-late   the same, and a new one is made before the second is destroyed
//	reset      one, and the primary context is reset between
//	primary    break the primary context, reset it, retain it again
//	gpus       a context of the second GPU is there too, where there is one
//	reload     close the driver library and open it again
//	namespace  open a second copy of the driver library
//	hang       no fault: destroy a context in which a kernel runs for three seconds
var FaultStrategies = []string{
	"alive", "one", "thread", "wait", "two", "two-late", "reset", "primary", "gpus", "reload",
	"namespace", "hang",
}

// RunFault does one experiment with the driver of that file name and returns its results as words
// NAME=CUresult, in the order of the calls.
func RunFault(library, kind, strategy string) string {
	const size = 4096
	out := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(out))
	texts := make([]*C.char, 0, 4)
	for _, s := range []string{library, faults, kind, strategy} {
		texts = append(texts, C.CString(s))
	}
	defer func() {
		for _, s := range texts {
			C.free(unsafe.Pointer(s))
		}
	}()
	C.exo_fault(texts[0], texts[1], texts[2], texts[3], out, size)
	return C.GoString(out)
}

// Sound runs a sound kernel in a new context of the first GPU.
func Sound(library string) error {
	lib, ptx := C.CString(library), C.CString(faults)
	defer C.free(unsafe.Pointer(lib))
	defer C.free(unsafe.Pointer(ptx))
	var result C.int
	if step := C.exo_sound(lib, ptx, &result); step != 0 {
		return fmt.Errorf("step %d: CUresult %d", int(step), int(result))
	}
	return nil
}
