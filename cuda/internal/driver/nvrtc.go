//go:build cuda

package driver

/*
#include <stdlib.h>
#include "nvrtc.h"
*/
import "C"

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// nvrtcNames are the sonames of NVRTC, newest first, then the names of an installation with
// headers. 11.2 is the name of every 11.x from 11.2 on.
var nvrtcNames = []string{
	"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
	"/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so",
}

// nvrtc is an opened compiler library. It stays open for the life of the process.
type nvrtc struct {
	lib     *C.exo_nvrtc
	version int // 13000 for 13.0
}

// opened holds the libraries by the name they were found under: opening one takes a file search and
// 60 MB of mappings.
var opened struct {
	sync.Mutex
	by map[string]*nvrtc
}

// findNVRTC opens the first library of the list that is there; nil when none is.
func findNVRTC(names []string) *nvrtc {
	opened.Lock()
	defer opened.Unlock()
	for _, name := range names {
		if n := opened.by[name]; n != nil {
			return n
		}
		cname := C.CString(name)
		var version C.int
		lib := C.exo_nvrtc_open(cname, &version)
		C.free(unsafe.Pointer(cname))
		if lib == nil {
			continue
		}
		if opened.by == nil {
			opened.by = map[string]*nvrtc{}
		}
		opened.by[name] = &nvrtc{lib: lib, version: int(version)}
		return opened.by[name]
	}
	return nil
}

// nvrtcInvalidOption is what NVRTC answers to an architecture that it does not know.
const nvrtcInvalidOption = 5

// compile makes a cubin. An error in the source is a *device.SourceError with the compiler's log
// and the line that it complains about first; an architecture unknown to this NVRTC is
// ErrNotSupported.
func (n *nvrtc) compile(src kernels.Source, options []string) ([]byte, error) {
	source, file := C.CString(src.Code), C.CString(src.File)
	defer C.free(unsafe.Pointer(source))
	defer C.free(unsafe.Pointer(file))
	// The array of pointers is C memory too: C may not be handed Go memory that holds pointers.
	argv := (*[1 << 10]*C.char)(C.malloc(C.size_t(len(options)+1) * C.size_t(unsafe.Sizeof(source))))
	defer C.free(unsafe.Pointer(argv))
	for i, o := range options {
		argv[i] = C.CString(o)
		defer C.free(unsafe.Pointer(argv[i]))
	}
	var image, log *C.char
	var size C.size_t
	r := C.exo_nvrtc_compile(n.lib, source, file, C.int(len(options)), &argv[0], &image, &size, &log)
	defer C.free(unsafe.Pointer(image))
	defer C.free(unsafe.Pointer(log))
	if r == 0 && size > 0 {
		return C.GoBytes(unsafe.Pointer(image), C.int(size)), nil
	}
	text := ""
	if log != nil {
		text = strings.TrimSpace(C.GoString(log))
	}
	what := fmt.Sprintf("compile %s with NVRTC %d.%d for %s: %s", src.File, n.version/1000, n.version%1000/10,
		options[0], C.GoString(C.exo_nvrtc_error(n.lib, r)))
	if r == nvrtcInvalidOption || r == 0 {
		return nil, fmt.Errorf("%s: %w\n%s", what, device.ErrNotSupported, text)
	}
	return nil, &device.SourceError{What: what, Log: text + complaint(src, text)}
}

// complaint quotes the source line of the log's first error, unless a #line directive has given it
// to another file.
func complaint(src kernels.Source, log string) string {
	m := regexp.MustCompile(`(?m)^(.*)\((\d+)\): (?:catastrophic )?error`).FindStringSubmatch(log)
	if m == nil || m[1] != src.File {
		return ""
	}
	line, err := strconv.Atoi(m[2])
	lines := strings.Split(src.Code, "\n")
	if err != nil || line < 1 || line > len(lines) {
		return ""
	}
	return fmt.Sprintf("\nline %d of %s: %s", line, src.File, lines[line-1])
}
