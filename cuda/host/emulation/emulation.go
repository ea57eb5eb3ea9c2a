// Package emulation compiles the CUDA sources of kernels for the processor, for tests of their text
// on machines without a GPU. A program of testdata runs a kernel block by block, its threads as
// fibers of one thread.
package emulation

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// programs are the sources that include the text of a kernel and run it.
//
//go:embed testdata/*.?pp
var programs embed.FS

// Options of Compile. With Sanitized, sanitizers watch each access of a kernel. With Exact,
// floating point follows the source, as nvcc --fmad=false does.
var (
	Sanitized = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}
	Exact     = []string{"-ffp-contract=off"}
)

// Compile compiles a kernel with a program of testdata, named without its folder, and returns the
// path of the executable. It skips the test if there is no g++. Executables are kept across runs
// (internal/base/testkit), because the compiler takes most of the time of these tests.
func Compile(t testing.TB, program string, source kernels.Source, options ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ to compile the kernels for the CPU with")
	}
	runner := sourceOf(t, program)
	args := append([]string{
		"-std=c++17", "-O1", "-Wno-unknown-pragmas", "-Werror",
		"-DKERNEL=" + source.Name,
	}, options...)
	parts := append([]string{"emulation", testkit.CompilerVersion(t, compiler), runner, source.Code}, args...)
	return testkit.CachedFile(t, func(path string) error {
		text, main := path+".cu", path+".cpp"
		if err := os.WriteFile(text, []byte(source.Code), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(main, []byte(runner), 0o600); err != nil {
			return err
		}
		cmd := exec.Command(compiler, append(args, fmt.Sprintf("-DKERNEL_FILE=%q", text), "-o", path, main)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", source.File, err, out)
		}
		return nil
	}, parts...)
}

// sourceOf returns the text of a program of testdata, with the text of the fibers before it and the
// texts that it includes.
func sourceOf(t testing.TB, program string) string {
	t.Helper()
	text := strings.ReplaceAll(testkit.ReadFile(t, programs, "testdata/"+program), "#include \"launch.hpp\"\n",
		testkit.ReadFile(t, programs, "testdata/launch.hpp"))
	return testkit.ReadFile(t, programs, "testdata/fibers.hpp") + text
}

// Param is one parameter of a launch: memory, or a scalar.
type Param struct {
	Mem    []byte
	Scalar bool
	Bits   uint64 // of the scalar
}

// Launch runs an executable of emulate_fuse.cpp or emulate_tally.cpp and returns the memory of each
// parameter after it, which is empty for scalars. It returns an error with the output of the
// executable if that fails, for example because a sanitizer has found something.
func Launch(t testing.TB, program string, params []Param, threads, blocks int) (after [][]byte, err error) {
	t.Helper()
	return launch(t, []string{program}, params, threads, blocks)
}

// launch runs a command with the name of the file of parameters behind it.
func launch(t testing.TB, command []string, params []Param, threads, blocks int) (after [][]byte, err error) {
	t.Helper()
	var file []byte
	word := func(v uint64) { file = binary.LittleEndian.AppendUint64(file, v) }
	for _, v := range []int{threads, blocks, len(params)} {
		word(uint64(v))
	}
	for _, p := range params {
		if p.Scalar {
			word(0)
			word(p.Bits)
			continue
		}
		word(1)
		word(uint64(len(p.Mem)))
		file = append(file, p.Mem...)
	}
	path := filepath.Join(t.TempDir(), "parameters")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(command[0], append(command[1:], path)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(have) != len(file) {
		return nil, fmt.Errorf("%d bytes, want %d", len(have), len(file))
	}
	at := 24 // after the first words
	for _, p := range params {
		at += 16
		after = append(after, bytes.Clone(have[at:][:len(p.Mem)])) // aligned for elements of all types
		at += len(p.Mem)
	}
	return after, nil
}
