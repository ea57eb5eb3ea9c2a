package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/testcache"
)

// Options of the emulations: sanitizers watch each access of a kernel, and floating point follows
// the source, as nvcc --fmad=false does.
var (
	Sanitized = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}
	Exact     = []string{"-ffp-contract=off"}
)

// CompileEmulation compiles a kernel's CUDA text for the CPU with a program of testdata, and
// returns the path of the result. It skips the test where there is no g++. The results are kept
// across runs (internal/testcache), because the compiler takes most of the time of these tests.
func CompileEmulation(t testing.TB, program string, source kernels.Source, options ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ to compile the kernels for the CPU with")
	}
	program = filepath.Join("testdata", program)
	args := append([]string{
		"-std=c++17", "-O1", "-pthread", "-Wno-unknown-pragmas", "-Werror",
		"-DKERNEL=" + source.Name,
	}, options...)
	parts := append([]string{
		"emulation", testcache.Version(t, compiler), testcache.Read(t, os.DirFS("."), program),
		source.Code,
	}, args...)
	return testcache.File(t, func(path string) error {
		text := path + ".cu"
		if err := os.WriteFile(text, []byte(source.Code), 0o600); err != nil {
			return err
		}
		cmd := exec.Command(compiler, append(args, fmt.Sprintf("-DKERNEL_FILE=%q", text), "-o", path, program)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", source.File, err, out)
		}
		return nil
	}, parts...)
}
