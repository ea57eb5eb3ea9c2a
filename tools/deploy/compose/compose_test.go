// Package compose_test starts the services of compose.yaml, from the images of
// tools/deploy/container, with the runtime that Docker has below it.
package compose_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Run(m, "deploy/compose")) }

// file is compose.yaml, as far as it is used. Other keys are errors.
type file struct {
	Name     string
	Process  service `yaml:"x-process"`
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Restart, User, Image string
	StopGracePeriod      string   `yaml:"stop_grace_period"`
	ReadOnly             bool     `yaml:"read_only"`
	CapDrop              []string `yaml:"cap_drop"`
	SecurityOpt          []string `yaml:"security_opt"`
	DependsOn            []string `yaml:"depends_on"`
	Tmpfs, Command       []string
	Volumes, Ports       []string
	Environment          map[string]string
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+):([-?])([^}]*)\}`)

func load(t *testing.T, variables map[string]string) (f file, err error) {
	t.Helper()
	data, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	text := variable.ReplaceAllStringFunc(string(data), func(s string) string {
		m := variable.FindStringSubmatch(s)
		if v := variables[m[1]]; v != "" {
			return v
		}
		if m[2] == "?" {
			errs = append(errs, fmt.Errorf("%s: %s", m[1], m[3]))
		}
		return m[3]
	})
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	return f, errors.Join(append(errs, d.Decode(&f))...)
}

// TestFile: every service is unprivileged on a read-only root, refers to volumes that exist, and
// needs the variables that have no default.
func TestFile(t *testing.T) {
	f, err := load(t, map[string]string{"EXOSWARM_AUTH": "/auth", "EXOSWARM_DATA": "/data"})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Services) != 3 {
		t.Errorf("%d services, want 3", len(f.Services))
	}
	for name, s := range f.Services {
		if !s.ReadOnly || s.User != "65532:65532" || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" ||
			len(s.SecurityOpt) != 1 || s.SecurityOpt[0] != "no-new-privileges:true" {
			t.Errorf("%s has rights: %+v", name, s)
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, ok := f.Volumes[source]; !ok && !strings.HasPrefix(source, "/") {
				t.Errorf("%s: volume %s is not declared", name, source)
			}
		}
	}
	if _, err := load(t, nil); err == nil || !strings.Contains(err.Error(), "EXOSWARM_AUTH: set it to the folder") {
		t.Errorf("without variables: error %v, want their names", err)
	}
}

// images returns the archives of the three images: of a release, or made now.
func images(t *testing.T, root string) map[string]string {
	t.Helper()
	dir, made := t.TempDir(), false
	all := map[string]string{}
	for _, name := range []string{"exoswarm", "cpuagent", "gpuagent"} {
		path, err := programs.Released(name + "-*-linux-amd64.tar")
		if err != nil && !made {
			made = true
			cmd := exec.Command("go", "run", "./deploy/container", "-commands", programs.Dir(t), "-o", dir)
			cmd.Dir = filepath.Join(root, "tools")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("write the images: %v\n%s", err, text)
			}
		}
		if made {
			path = filepath.Join(dir, name+".tar")
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mb := float64(info.Size()) / 1e6; mb > 26 {
			t.Errorf("the image %s has %.0f MB compressed, its budget is 26", name, mb)
		}
		all[name] = path
	}
	return all
}

// TestCompose: the services of the file start as an unprivileged user on a read-only root, and a
// run on them has its result. A volume that cannot be written and a missing device are errors that
// say so.
func TestCompose(t *testing.T) {
	testkit.OnlyLong(t)
	if os.Getuid() != 0 {
		programs.Missing(t, "containers of runc need root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		programs.Missing(t, "no runc: install the package runc")
	}
	programs.Namespaces(t)
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]unpacked{}
	for name, path := range images(t, root) {
		byName[name] = unpack(t, path, filepath.Join(t.TempDir(), name))
	}

	// What docs/deploy.md does before the first start.
	exoswarm := filepath.Join(programs.Dir(t), "exoswarm")
	auth, data, volumes := filepath.Join(t.TempDir(), "auth"), t.TempDir(), t.TempDir()
	if out, err := exec.Command(exoswarm, "auth", "init", "--dir", auth, "--yes").CombinedOutput(); err != nil {
		t.Fatalf("auth init: %v\n%s", err, out)
	}
	const own = 65532
	for _, dir := range []string{auth, data} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, own, own))
		}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := load(t, map[string]string{"EXOSWARM_AUTH": auth, "EXOSWARM_DATA": data})
	if err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost nats\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	network := ""
	service := func(name string) *container {
		s := f.Services[name]
		image, _, _ := strings.Cut(strings.TrimPrefix(s.Image, "exoswarm/"), ":")
		c := &container{
			image: byName[image], command: s.Command, user: own, network: network,
			binds: []bind{{hosts, "/etc/hosts", true}},
		}
		for k, v := range s.Environment {
			c.env = append(c.env, k+"="+v)
		}
		for _, v := range s.Volumes {
			part := append(strings.Split(v, ":"), "")
			source := part[0]
			if !strings.HasPrefix(source, "/") {
				// A new volume has the owner of the folder in the image.
				source = filepath.Join(volumes, source)
				if err := os.MkdirAll(source, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(source, own, own); err != nil {
					t.Fatal(err)
				}
			}
			c.binds = append(c.binds, bind{source, part[1], part[2] == "ro"})
		}
		// The points of mounts: a root that is read-only takes none later.
		for _, b := range c.binds {
			at := filepath.Join(c.image.root, b.target)
			info, err := os.Stat(b.source)
			if err != nil {
				t.Fatal(err)
			}
			if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil && info.IsDir() {
				err = os.MkdirAll(at, 0o755)
			} else if err == nil {
				err = os.WriteFile(at, nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"proc", "dev"} {
			if err := os.MkdirAll(filepath.Join(c.image.root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}

	nats := service("nats")
	nats.start(t)
	nats.ready("nats is ready")
	network = "/proc/" + nats.pid() + "/ns/net"
	// run runs a command of an operator beside the services.
	run := func(args ...string) string {
		t.Helper()
		c := service("nats")
		c.command = args
		c.env = []string{"NATS_URL=nats://nats:4222", "NATS_CREDS=/etc/exoswarm/operator.creds"}
		c.binds = append(
			c.binds,
			bind{filepath.Join(auth, "creds", "operator.creds"), "/etc/exoswarm/operator.creds", true},
		)
		if err := os.WriteFile(filepath.Join(c.image.root, "etc/exoswarm/operator.creds"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		c.start(t)
		if code := c.end(0); code != 0 {
			t.Fatalf("exoswarm %s: exit code %d\n%s", strings.Join(args, " "), code, c.out)
		}
		return c.out.String()
	}
	cpu, gpu := service("cpuagent"), service("gpuagent")
	cpu.start(t)
	gpu.start(t)
	// Agents may start before their streams are made.
	cpu.ready("an operator makes them with exoswarm init --yes")
	run("init", "--yes")
	cpu.ready("cpuagent is ready")
	gpu.ready("gpuagent is ready")
	for _, c := range []*container{nats, cpu, gpu} {
		status, err := os.ReadFile("/proc/" + c.pid() + "/status")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`Uid:\s65532\s65532\s65532\s65532`, `CapEff:\s0+\n`, `CapPrm:\s0+\n`, `NoNewPrivs:\s1`,
		} {
			if !regexp.MustCompile(want).Match(status) {
				t.Errorf("%s: the process is not %s:\n%s", c.image.config.Entrypoint, want, status)
			}
		}
		mounts, err := os.ReadFile("/proc/" + c.pid() + "/mountinfo")
		if err != nil || !regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ / ro\b`).Match(mounts) {
			t.Errorf("%s: the root is not read-only: %v\n%s", c.image.config.Entrypoint, err, mounts)
		}
	}

	// A run in the cluster, over the folder that both sides see.
	var rows strings.Builder
	rows.WriteString("timestamp,value\n")
	for i := range 200 {
		fmt.Fprintf(&rows, "2026-01-01T%02d:%02d:00Z,%d\n", i/60, i%60, i%7)
	}
	for name, text := range map[string]string{
		"in.csv": rows.String(), "manifest.json": `[{"name":"s","uri":"file:data/in.csv"}]`,
	} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run("submit", "--wait", "--kind", "stream", "--spec", `{"name":"x","spec":{"name":"x","agents_per_group":16},`+
		`"candidates":["normal","suspicious","anomalous"],"columns":{"timestamp":"timestamp","features":["value"]},`+
		`"manifest":"file:data/manifest.json","output":"file:data/out.ndjson","rejects":"file:data/rejects.ndjson",`+
		`"summary":"file:data/summary.json"}`)
	out, err := os.ReadFile(filepath.Join(data, "out.ndjson"))
	if n := strings.Count(string(out), "\n"); err != nil || n != 200 {
		t.Errorf("the output has %d lines, error %v; want 200", n, err)
	}
	for _, c := range []*container{cpu, gpu, nats} {
		if code := c.end(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: exit code %d after SIGTERM\n%s", c.image.config.Entrypoint, code, c.out)
		}
	}

	// What an operator may get wrong: the reason is the last line.
	network = ""
	for name, c := range map[string]struct {
		change func(*container)
		want   string
	}{
		"nats":     {func(*container) {}, "data folder /var/lib/exoswarm: this process may not write there"},
		"gpuagent": {func(*container) {}, "--data-dir: mkdir /var/lib/exoswarm/kernels"},
		"cpuagent": {func(c *container) { c.command = append(c.command, "--root", "x=/none") }, "" +
			"--root x: open /none: no such file"},
	} {
		one := service(name)
		if err := os.RemoveAll(filepath.Join(volumes, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(volumes, name), 0o755); err != nil { // of root
			t.Fatal(err)
		}
		c.change(one)
		one.start(t)
		if code := one.end(0); code != 2 || !strings.Contains(one.out.String(), c.want) {
			t.Errorf("%s with a wrong setting: exit code %d, want 2 and %q:\n%s", name, code, c.want, one.out)
		}
	}
}
