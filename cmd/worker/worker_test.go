// Package main_test builds the library and runs programs with it. Package main has no Go files
// without cgo, and the test needs none.
package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// cycles is the number of times that a program allocates, uses and frees.
const cycles = "1000"

// Models: a random one of 26 KB, and the one of the examples.
const (
	tiny   = "testdata/tiny.gguf"
	gopher = "../../examples/model/gopher.gguf"
)

// need skips a test without a program.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

func command(t *testing.T, env []string, line ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, out)
	}
	return out
}

// build makes the library in a new folder. arguments are variables of make.
func build(t *testing.T, env []string, arguments ...string) (dir string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the flags of the linker are for Linux")
	}
	need(t, "gcc", "make")
	dir = t.TempDir()
	// The flags of a make above, as the gate has them, are not for this one.
	env = append([]string{"MAKEFLAGS=", "MAKELEVEL="}, env...)
	command(t, env, append([]string{"make", "-C", "../..", "worker", "WORKER_DIR=" + dir}, arguments...)...)
	return dir
}

// compile makes a program with a library.
func compile(t *testing.T, dir, source string, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(dir, strings.TrimSuffix(source, ".c"))
	command(t, nil, append([]string{
		"gcc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/" + source, "-I" + dir,
		"-L" + dir, "-lexoswarm_worker", "-Wl,-rpath," + dir, "-lpthread",
	}, flags...)...)
	return program
}

func ok(t *testing.T, env []string, line ...string) {
	t.Helper()
	if out := command(t, env, line...); !bytes.Equal(out, []byte("ok\n")) {
		t.Errorf("%s: %s", strings.Join(line, " "), out)
	}
}

// TestLibrary: programs in C, C++, Rust and Python use the library, and it shows nothing but the
// functions of its header.
func TestLibrary(t *testing.T) {
	t.Parallel()
	dir := build(t, nil)
	t.Run("memory", func(t *testing.T) { ok(t, nil, compile(t, dir, "residency.c"), cycles) })
	t.Run("models", func(t *testing.T) { ok(t, nil, compile(t, dir, "generate.c"), tiny, cycles) })
	t.Run("gopher", func(t *testing.T) { ok(t, nil, filepath.Join(dir, "generate"), gopher, "3") })
	t.Run("c++", func(t *testing.T) {
		need(t, "g++")
		command(t, nil, "g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++",
			filepath.Join(dir, "worker_cuda.h"))
	})
	t.Run("rust", func(t *testing.T) {
		need(t, "rustc")
		program := filepath.Join(dir, "rust")
		command(t, nil, "rustc", "--edition=2021", "-D", "warnings", "-o", program, "testdata/worker.rs", "-L", dir,
			"-l", "exoswarm_worker")
		ok(t, []string{"LD_LIBRARY_PATH=" + dir}, program)
	})
	t.Run("python", func(t *testing.T) {
		need(t, "python3")
		ok(t, nil, "python3", "testdata/worker.py", filepath.Join(dir, "libexoswarm_worker.so"))
	})
	t.Run("symbols", func(t *testing.T) {
		need(t, "nm")
		header, err := os.ReadFile("worker_cuda.h")
		testkit.NoError(t, "os.ReadFile", err)
		lines := strings.Split(strings.TrimSpace(string(command(t, nil, "nm", "-D", "--defined-only",
			filepath.Join(dir, "libexoswarm_worker.so")))), "\n")
		for _, line := range lines {
			name := line[strings.LastIndex(line, " ")+1:]
			if !bytes.Contains(header, []byte(name+"(")) {
				t.Errorf("the library shows %s, which worker_cuda.h has not", name)
			}
		}
		if n := bytes.Count(header, []byte(");\n")); n != len(lines) {
			t.Errorf("worker_cuda.h has %d functions, and the library shows %d", n, len(lines))
		}
	})
}

// TestSanitized: AddressSanitizer finds nothing in the code in C of the library and of a program.
// make sanitize has it watch the code in Go too, which then reads no memory of the program that it
// has not got.
func TestSanitized(t *testing.T) {
	t.Parallel()
	flags := []string{"CGO_CFLAGS=-g -O1 -fsanitize=address", "CGO_LDFLAGS=-fsanitize=address"}
	var arguments []string
	if os.Getenv("EXOSWARM_SANITIZE") != "" {
		flags, arguments = flags[:1], []string{"WORKER_BUILD=-asan"}
	}
	dir := build(t, flags, arguments...)
	ok(t, nil, compile(t, dir, "residency.c", "-fsanitize=address"), cycles)
	few := strconv.Itoa(testkit.Of(1000, 300))
	ok(t, nil, compile(t, dir, "generate.c", "-fsanitize=address"), tiny, few)
}

// TestWatched: Valgrind finds no wrong access and no leak in the cycles. Cycles of models run with
// long tests alone: Valgrind has one thread at a time, and a collector of Go that waits for another
// thread takes minutes of it. A library whose runtime tells Valgrind about its stacks and heap has no
// search for leaks, which does not bear that; the plain one has.
func TestWatched(t *testing.T) {
	if os.Getenv("EXOSWARM_VALGRIND") == "" {
		t.Skip("make valgrind runs it")
	}
	t.Parallel()
	need(t, "valgrind")
	// Valgrind does not know the signals with which Go preempts.
	env := []string{"GODEBUG=asyncpreemptoff=1"}
	// It takes some values in the heap of Go for undefined, also with the tag.
	line := []string{"valgrind", "--quiet", "--child-silent-after-fork=yes", "--undef-value-errors=no"}
	for name, of := range map[string]struct{ build, run []string }{
		"accesses": {
			[]string{"WORKER_TAGS=valgrind", "WORKER_STRIP="}, []string{"--leak-check=no", "--error-exitcode=9"},
		},
		// Wrong accesses are no errors here: Valgrind takes the stacks of goroutines for some.
		"leaks": {nil, []string{"--leak-check=full", "--suppressions=testdata/valgrind.supp"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := build(t, nil, of.build...)
			programs := [][]string{{compile(t, dir, "residency.c"), cycles}}
			if testkit.Long() {
				programs = append(programs, []string{compile(t, dir, "generate.c"), tiny, cycles})
			}
			for _, program := range programs {
				out := command(t, env, slices.Concat(line, of.run, program)...)
				if !bytes.HasSuffix(out, []byte("ok\n")) && !bytes.Contains(out, []byte("\nok\n")) ||
					bytes.Contains(out, []byte("lost in loss record")) {
					t.Errorf("%s", out)
				}
			}
		})
	}
}
