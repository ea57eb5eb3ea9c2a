package testkit_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// child is set for the process that calls InMemory and prints its folder.
const child = "EXOSWARM_TEST_TEMPDIR"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		testkit.TempInMemory()
		_, _ = os.Stdout.WriteString(os.TempDir())
		return
	}
	os.Exit(m.Run())
}

// TestInMemory: a folder that the environment names, and a long run, are respected.
func TestInMemory(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want []string
	}{
		{nil, []string{"/dev/shm", "/tmp"}}, // /tmp on a machine without room in memory
		{[]string{"TMPDIR=/var/tmp"}, []string{"/var/tmp"}},
		{[]string{"GOTMPDIR=/var/tmp"}, []string{"/tmp"}},
		{[]string{"EXOSWARM_LONG=1"}, []string{"/tmp"}},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append([]string{child + "=1"}, c.env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", c.env, err)
		}
		if got := string(out); !slices.Contains(c.want, got) {
			t.Errorf("with %q temporary folders are in %s, want one of %q", c.env, got, c.want)
		}
	}
}
