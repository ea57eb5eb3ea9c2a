package systemd_test

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

// TestPackage installs the package of a release under a real systemd, with dpkg: its units serve,
// its manual and completion are there, and its removal stops the units and leaves no program.
func TestPackage(t *testing.T) {
	testkit.OnlyLong(t)
	path, err := programs.Released("exoswarm_*_amd64.deb")
	if err != nil {
		programs.Missing(t, "%v", err)
	}
	s := startSystem(t, map[string]string{"test.target": "[Unit]\nDefaultDependencies=no\n"}, nil, bare)
	s.until("test.target", "ActiveState", "^active$")
	sh := func(script string) string {
		t.Helper()
		out, err := s.run("sh", "-c", "set -eu; "+script)
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	// What dpkg writes stays in this system: it has a layer over /usr, and an empty list of packages.
	sh("mkdir /mnt/usr /mnt/usr-work; " +
		"mount -t overlay none /usr -o lowerdir=/usr,upperdir=/mnt/usr,workdir=/mnt/usr-work")
	sh("mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers; touch /var/lib/dpkg/status")
	sh("dpkg -i --force-not-root --log=/dev/null '" + path + "'")
	sh("test -d /etc/exoswarm; test -s /usr/share/man/man1/exoswarm-run.1; " +
		"test -s /usr/share/bash-completion/completions/exoswarm; test -s /usr/share/doc/exoswarm/THIRD-PARTY-LICENSES")
	if out, err := s.run("systemd-analyze", "verify", "/usr/lib/systemd/system/exoswarm-serve.service"); err != nil ||
		strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// The system of the test looks for units elsewhere than a machine does.
	sh("systemctl link /usr/lib/systemd/system/exoswarm-*.service")
	s.must("start", "exoswarm-serve")
	if text := s.property("exoswarm-serve", "StatusText"); text != "serving" {
		t.Errorf("the status of exoswarm-serve is %q, want serving", text)
	}
	if out := sh("exoswarm agent list -o json"); !strings.Contains(out, `"cpuagent"`) ||
		!strings.Contains(out, `"gpuagent"`) {
		t.Errorf("the agents of exoswarm-serve are %s, want both", out)
	}
	sh("dpkg -r --log=/dev/null exoswarm")
	if state := s.property("exoswarm-serve", "ActiveState"); state != "inactive" {
		t.Errorf("after the removal exoswarm-serve is %s, want inactive", state)
	}
	sh("test ! -e /usr/bin/exoswarm; test ! -e /usr/lib/systemd/system/exoswarm-serve.service")
}
