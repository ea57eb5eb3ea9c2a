// Package programs provides the commands as releases are built, for the tests of the files that
// deploy them.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Environment variables of the tests.
const (
	// Commands is an absolute path of a folder with the three commands, static as make build makes
	// them. Without it the tests build them.
	Commands = "EXOSWARM_COMMANDS"
	// Release is an absolute path of a folder with a release of this platform, as make snapshot makes
	// it.
	Release = "EXOSWARM_RELEASE"
	// Required makes Missing fail a test, if it is not empty.
	Required = "EXOSWARM_DEPLOY"
)

// built is the folder that build has made; nil before.
var built atomic.Pointer[string]

var build = sync.OnceValues(func() (string, error) {
	out, err := os.MkdirTemp("", "exoswarm-programs-")
	if err != nil {
		return "", err
	}
	built.Store(&out)
	if err := os.Chmod(out, 0o755); err != nil { // for the users of units and images
		return out, err
	}
	root, err := Root()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"go", "build", "-C", "tools", "-o", filepath.Join(out, "size"), "./size"},
		{filepath.Join(out, "size"), "-o", out},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err != nil {
			return out, fmt.Errorf("build the commands: %w\n%s", err, text)
		}
	}
	return out, nil
})

// Root returns the root folder of the module, for a test that runs in a folder below it.
func Root() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		// The nested modules of tools have a go.mod too, but no cmd.
		if _, err := os.Stat(filepath.Join(at, "cmd", "gpuagent")); err == nil {
			return at, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", fmt.Errorf("no folder above has cmd/gpuagent: %w", os.ErrNotExist)
		}
		at = up
	}
}

// Dir returns the folder of the static commands exoswarm, cpuagent and gpuagent. A test run builds
// them at most once; Clean removes them.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(Commands); dir != "" {
		return dir
	}
	out, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Released returns the one file of the release in the folder of Release whose name matches a
// pattern.
func Released(pattern string) (string, error) {
	dir := os.Getenv(Release)
	if dir == "" {
		return "", fmt.Errorf("no folder in %s: make snapshot makes a release", Release)
	}
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return "", fmt.Errorf("%s: %w", pattern, err)
	}
	if len(all) != 1 {
		return "", fmt.Errorf("%s has the files %v for %s, want one", dir, all, pattern)
	}
	return all[0], nil
}

// Missing skips a test because something that it needs cannot be had on this machine. Where
// EXOSWARM_DEPLOY is set, as in CI, it fails the test.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Required) != "" {
		t.Fatalf("required by "+Required+": "+format, args...)
	}
	t.Skipf(format, args...)
}

// Namespaces skips a test on a machine whose kernel, or whose container, gives its root no
// namespaces with mounts of their own, whatever EXOSWARM_DEPLOY says: nothing that could be
// installed helps.
func Namespaces(t testing.TB) {
	t.Helper()
	const try = "mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work && " +
		"mount -t overlay none /etc -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work && mount -t proc proc /proc"
	out, err := exec.Command("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "sh", "-c",
		try).CombinedOutput()
	if err != nil {
		t.Skipf("no namespaces with mounts of their own on this machine: %v: %s", err, out)
	}
}

// Run runs the tests in a folder of the repository, and removes the commands that Dir has built. It
// returns the exit code.
func Run(m *testing.M, dir string) int {
	root, err := Root()
	if err == nil {
		err = os.Chdir(filepath.Join(root, dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		return 1
	}
	code := m.Run()
	if out := built.Load(); out != nil {
		_ = os.RemoveAll(*out)
	}
	return code
}
