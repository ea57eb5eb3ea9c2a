//go:build linux && (amd64 || arm64)

package index

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

func mapped(t *testing.T, name string, pages int) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatalf("os.Create: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(pages) * int64(pageSize)); err != nil {
		t.Fatalf("f.Truncate: %v", err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, pages*int(pageSize), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		t.Fatalf("syscall.Mmap: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("syscall.Munmap: %v", err)
		}
	})
	return f, b
}

func install(t *testing.T) {
	t.Helper()
	if err := InstallMapFault(); err != nil {
		t.Fatalf("Install() = %v", err)
	}
}

// TestFullDisk: writes to mappings of files on a full disk go to pages in memory, one for each.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, syscall.EPERM) {
		t.Skip("only root may mount a disk")
	} else if err != nil {
		t.Fatalf("syscall.Mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("syscall.Unmount: %v", err)
		}
	})
	const pages = 16
	install(t)
	f, b := mapped(t, filepath.Join(dir, "mapped"), pages)
	b[0] = 1 // It has its place.
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("os.WriteFile = %v, want %v", err, syscall.ENOSPC)
	}
	before := MapFaults()
	b[1] = 2
	if n := MapFaults() - before; n != 0 {
		t.Errorf("%d pages replaced, want none: the page has its place", n)
	}
	var all sync.WaitGroup
	for page := 1; page < pages; page++ { // on several threads
		all.Go(func() {
			runtime.LockOSThread()
			copy(b[page*int(pageSize):], bytes.Repeat([]byte{byte(page)}, int(pageSize)/2))
		})
	}
	all.Wait()
	if n := MapFaults() - before; n != pages-1 {
		t.Errorf("%d pages replaced, want %d", n, pages-1)
	}
	for page := 1; page < pages; page++ {
		got := b[page*int(pageSize):][:pageSize]
		want := append(bytes.Repeat([]byte{byte(page)}, int(pageSize)/2), make([]byte, pageSize/2)...)
		if !bytes.Equal(got, want) {
			t.Errorf("page %d is not what was written, and zeros", page)
		}
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatalf("os.Remove: %v", err)
	}
	got := make([]byte, len(b))
	if _, err := f.ReadAt(got, 0); err != nil {
		t.Fatalf("f.ReadAt: %v", err)
	}
	if want := append([]byte{1, 2}, make([]byte, len(b)-2)...); !bytes.Equal(got, want) {
		t.Error("the file has what its mapping lost")
	}
}

// TestTruncatedFile: reads beyond the end of a file find zeros, and are counted.
func TestTruncatedFile(t *testing.T) {
	install(t)
	f, b := mapped(t, filepath.Join(t.TempDir(), "f"), 2)
	b[pageSize] = 7
	if err := f.Truncate(int64(pageSize)); err != nil {
		t.Fatalf("f.Truncate: %v", err)
	}
	before := MapFaults()
	if got := b[pageSize]; got != 0 {
		t.Errorf("a page beyond the end of the file has %d, want 0", got)
	}
	if n := MapFaults() - before; n != 1 {
		t.Errorf("%d pages replaced, want 1", n)
	}
}

// TestOtherHandlers: neither os/signal nor another handler displaces this one for good.
func TestOtherHandlers(t *testing.T) {
	install(t)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch)
	signal.Ignore(syscall.SIGBUS)
	signal.Reset(syscall.SIGBUS)
	signal.Stop(ch)
	if now, err := action(nil); err != nil || now.handler != handlerPC() {
		t.Errorf("os/signal displaced the handler: %+v, %v", now, err)
	}
	if _, err := action(&saved); err != nil {
		t.Fatalf("action: %v", err)
	}
	install(t)
	want := saved
	want.handler = handlerPC()
	if now, err := action(nil); err != nil || now != want {
		t.Errorf("the action is %+v, %v, want %+v", now, err, want)
	}
	t.Run("truncated file", TestTruncatedFile)
}

// TestOtherFaults: a fault that is not the program's own goes to the Go runtime, which makes a
// panic of it where it may.
func TestOtherFaults(t *testing.T) {
	install(t)
	f, b := mapped(t, filepath.Join(t.TempDir(), "f"), 1)
	if err := f.Truncate(0); err != nil {
		t.Fatalf("f.Truncate: %v", err)
	}
	fault := func(want uintptr, read func()) {
		t.Helper()
		defer func() {
			got := recover()
			if err, ok := got.(interface{ Addr() uintptr }); !ok || err.Addr() != want {
				t.Errorf("%#v, want a panic with the address %#x", got, want)
			}
		}()
		read()
	}
	before := MapFaults()
	var sink byte
	func() {
		defer func() {
			if err, ok := recover().(runtime.Error); !ok || !strings.Contains(err.Error(), "nil pointer dereference") {
				t.Errorf("%v, want a panic for a nil pointer", err)
			}
		}()
		var p *byte
		sink += *p
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func(was uintptr) { end = was }(end)
	end = start // No code is the program's own.
	for range 100 {
		fault(uintptr(unsafe.Pointer(&b[8])), func() { sink += b[8] })
	}
	if n := MapFaults() - before; n != 0 {
		t.Errorf("%d pages replaced, want none", n)
	}
	_ = sink
}

// TestSentSignal: a SIGBUS that somebody sent ends the process as ever, with its sentence.
func TestSentSignal(t *testing.T) {
	if os.Getenv("EXOSWARM_MAPFAULT_CHILD") != "" {
		install(t)
		_ = syscall.Kill(os.Getpid(), syscall.SIGBUS)
		select {}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSentSignal$")
	cmd.Env = append(os.Environ(), "EXOSWARM_MAPFAULT_CHILD=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !bytes.Contains(out, []byte("SIGBUS: bus error")) {
		t.Errorf("a process that was sent SIGBUS: %v, want exit code 2 and SIGBUS:\n%s", err, out)
	}
}

func TestCodeAround(t *testing.T) {
	const maps = `400000-500000 r-xp 00000000 fd:00 7 /bin/a b
500000-600000 r--p 00100000 fd:00 7 /bin/a b
600000-700000 r-xp 00200000 fd:00 7 /bin/a b
7f0000000000-7f0000100000 r-xp 00000000 fd:00 8 /lib/libcuda.so
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
`
	for pc, want := range map[uintptr][2]uintptr{
		0x400010:       {0x400000, 0x700000},
		0x6fffff:       {0x400000, 0x700000},
		0x7f0000000000: {0x7f0000000000, 0x7f0000100000},
		0x1000:         {0, ^uintptr(0)},
	} {
		if start, end := codeAround([]byte(maps), pc); start != want[0] || end != want[1] {
			t.Errorf("codeAround(%#x) = %#x, %#x, want %#x", pc, start, end, want)
		}
	}
}
