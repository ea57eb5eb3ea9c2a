//go:build linux && (amd64 || arm64)

package index

// This file keeps a process alive that writes to a memory-mapped file while the disk is full. The
// kernel answers such a write with SIGBUS, and the Go runtime ends the process. The handler of this
// package maps a private page of zeros in place of the page that found no room, and counts it. The
// write then succeeds in memory and is lost for the file. So a caller compares Count before and
// after it uses a mapping, and does not believe the file once the count has changed.
//
// The journal of systemd does the same. The handler is assembly because it runs on the signal
// stack, in the middle of any function.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// What the handler reads. All but count is written before the handler is installed.
var (
	next       uintptr // the handler before, of the Go runtime
	pageSize           = uintptr(os.Getpagesize())
	start, end uintptr = 0, ^uintptr(0) // of the program's code
	count      uint64
)

// sigaction is the kernel's.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

var (
	mu    sync.Mutex
	saved sigaction // of the Go runtime
)

func handlerPC() uintptr

// InstallMapFault installs the handler if it is not. It is cheap to call again, and does away with
// a handler that was installed meanwhile.
//
// The handler acts on SIGBUS with code BUS_ADRERR if the instruction is the program's own. It
// passes everything else to the handler of the Go runtime, so other faults end the process or panic
// as ever. A shared library that maps devices, as the CUDA driver does, is left alone.
func InstallMapFault() error {
	mu.Lock()
	defer mu.Unlock()
	now, err := action(nil)
	if err != nil || now.handler == handlerPC() {
		return err
	}
	if next == 0 {
		if now.handler <= 1 { // SIG_DFL and SIG_IGN
			return errors.New("handle SIGBUS: the Go runtime has no handler for it")
		}
		// Without /proc all code counts as the program's.
		if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
			start, end = codeAround(maps, handlerPC())
		}
		saved, next = now, now.handler
	}
	ours := saved // Its flags, its restorer, and a mask that blocks all signals.
	ours.handler = handlerPC()
	_, err = action(&ours)
	return err
}

// action sets the action of SIGBUS where there is a new one, and returns the one before.
func action(set *sigaction) (old sigaction, err error) {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGBUS),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(&old)), unsafe.Sizeof(old.mask), 0, 0)
	if errno != 0 {
		return old, fmt.Errorf("handle SIGBUS: %w", errno)
	}
	return old, nil
}

// codeAround returns the range of the executable mappings of the file that has pc, from the text of
// /proc/self/maps; all addresses if no file has it.
func codeAround(maps []byte, pc uintptr) (start, end uintptr) {
	type mapping struct{ start, end uintptr }
	code := map[string]mapping{}
	file := ""
	for line := range bytes.Lines(maps) {
		var m mapping
		var rights, offset, device, inode, name string
		_, _ = fmt.Sscanf(string(line), "%x-%x %s %s %s %s %s",
			&m.start, &m.end, &rights, &offset, &device, &inode, &name)
		if len(rights) < 3 || rights[2] != 'x' {
			continue
		}
		if m.start <= pc && pc < m.end {
			file = name
		}
		if before, ok := code[name]; ok {
			m.start, m.end = min(m.start, before.start), max(m.end, before.end)
		}
		code[name] = m
	}
	if file == "" {
		return 0, ^uintptr(0)
	}
	return code[file].start, code[file].end
}

// MapFaults returns how many pages of mapped files were replaced since the process began. A page
// counts again when it is mapped again.
func MapFaults() uint64 { return atomic.LoadUint64(&count) }
