package systemd_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

// The environment of the process that becomes the init process of the inner system.
const (
	innerUnits    = "EXOSWARM_INNER_UNITS"    // folder of the units
	innerCommands = "EXOSWARM_INNER_COMMANDS" // folder to be mounted at /usr/local/bin; empty: a new one
	innerEtc      = "EXOSWARM_INNER_ETC"      // folder to be mounted at /etc/exoswarm
	innerGroup    = "EXOSWARM_INNER_GROUP"    // name of its control group
)

// TestMain becomes the inner system if the environment says so, and otherwise runs the tests.
func TestMain(m *testing.M) {
	if os.Getenv(innerUnits) != "" {
		err := becomeSystem()
		fmt.Fprintln(os.Stderr, "inner system:", err)
		os.Exit(125)
	}
	os.Exit(programs.Run(m, "deploy/systemd"))
}

// becomeSystem sets up the mounts of a process that is the first one of new namespaces, and
// executes systemd. Nothing that it mounts or writes is visible outside. It returns on an error
// only.
func becomeSystem() error {
	runtime.LockOSThread()
	for _, name := range controlGroups(os.Getenv(innerGroup)) {
		// A hierarchy that takes no processes, such as cpuset without processors, is left alone.
		if os.Mkdir(name, 0o755) == nil {
			_ = os.WriteFile(filepath.Join(name, "cgroup.procs"), []byte("0"), 0o644)
		}
	}
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new control groups: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	// A system without commands has no units of the repository either.
	bin, kind, flags := os.Getenv(innerCommands), "", uintptr(syscall.MS_BIND)
	if bin == "" {
		bin, kind, flags = "tmpfs", "tmpfs", 0
	}
	units, etc := os.Getenv(innerUnits), os.Getenv(innerEtc)
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
		{bin, "/usr/local/bin", kind, flags, ""},
		// The layers of /etc are in a tmpfs: an overlay file system cannot be on top of another one.
		{"tmpfs", "/mnt", "tmpfs", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		{"tmpfs", "/var/lib", "tmpfs", 0, "mode=755"},
		{"tmpfs", "/root", "tmpfs", 0, "mode=700"},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.source, m.target, err)
		}
	}
	for _, dir := range []string{"/mnt/upper", "/mnt/work", "/run/systemd/system", "/var/lib/private"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod("/var/lib/private", 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("overlay", "/etc", "overlay", 0,
		"lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work"); err != nil {
		return fmt.Errorf("mount a layer over /etc: %w", err)
	}
	if err := os.CopyFS("/etc/exoswarm", os.DirFS(etc)); err != nil {
		return fmt.Errorf("copy the settings: %w", err)
	}
	if err := os.CopyFS("/run/units", os.DirFS(units)); err != nil {
		return fmt.Errorf("copy the units: %w", err)
	}
	// systemd mounts the credentials of a unit in a child, and expects to see them itself.
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	return syscall.Exec("/lib/systemd/systemd", []string{
		"systemd", "--system", "--unit=test.target", "--log-target=console", "--show-status=0",
	}, []string{"container=docker", "PATH=" + os.Getenv("PATH"), "SYSTEMD_UNIT_PATH=/run/units:/etc/systemd/system"})
}

// controlGroups returns the folders of a group in every hierarchy of control groups.
func controlGroups(name string) (all []string) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if part := strings.Fields(lines.Text()); len(part) > 2 && strings.HasPrefix(part[2], "cgroup") {
			all = append(all, filepath.Join(part[1], name))
		}
	}
	return all
}
