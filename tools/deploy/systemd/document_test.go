package systemd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestDocument executes the commands of docs/deploy.md, in order, on a system that has the programs
// and the files of the repository and nothing else: its end is a monitored cluster.
func TestDocument(t *testing.T) {
	testkit.OnlyLong(t)
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := []string{"set -eux", "export HOME=/root", "cd /run/work"}
	var targets []string
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "sh":
			script = append(script, m[2])
		case "yaml":
			targets = append(targets, scraped(t, m[2])...)
		}
	}
	if len(script) < 8 || len(targets) != 3 {
		t.Fatalf("the document has %d blocks of commands and the targets %v", len(script)-3, targets)
	}
	for _, target := range targets {
		script = append(script, "curl -fsS http://"+target+"/metrics > /dev/null")
	}
	s := startSystem(t, map[string]string{"test.target": "[Unit]\nDefaultDependencies=no\n"}, nil, bare)
	s.until("test.target", "ActiveState", "^active$")
	for _, args := range [][]string{
		{"mkdir", "-p", "/run/work"},
		{"ln", "-s", programs.Dir(t), "/run/work/bin"},
		{"ln", "-s", filepath.Join(root, "deploy"), "/run/work/deploy"},
	} {
		if out, err := s.run(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	out, err := s.run("bash", "-c", strings.Join(script, "\n"))
	if err != nil {
		t.Errorf("the commands of docs/deploy.md: %v\n%s", err, out)
	}
	for _, unit := range []string{"exoswarm-nats", "exoswarm-cpuagent", "exoswarm-gpuagent", "exoswarm-ui"} {
		if state := s.property(unit, "ActiveState"); state != "active" {
			t.Errorf("in the end %s is %s: %s", unit, state, s.property(unit, "StatusText"))
		}
		if n := s.property(unit, "NRestarts"); n != "0" {
			t.Errorf("%s failed and was restarted %s times", unit, n)
		}
	}
}

func scraped(t *testing.T, text string) (all []string) {
	t.Helper()
	var c struct {
		Jobs []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	for _, job := range c.Jobs {
		for _, s := range job.Static {
			all = append(all, s.Targets...)
		}
	}
	return all
}
