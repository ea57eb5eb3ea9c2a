package serveprocess_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// folder has the files for Prometheus.
const folder = "../../../deploy/prometheus"

// rule is an alert or a recording rule.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

// rules returns all rules of deploy/prometheus.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name, Interval string
			Rules          []rule
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// metricName matches the metrics of Exoswarm in an expression, and the names of recording rules.
var metricName = regexp.MustCompile(`(?:[a-z]+:)?\bexoswarm_[a-z0-9_]+(?::[a-z0-9_]+)?`)

// sampled returns the family of a series and the suffix of a histogram.
func sampled(all map[string]command.Family, name string) (f command.Family, suffix string, ok bool) {
	if f, ok = all[name]; ok {
		return f, "", f.Type != command.Histogram
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, is := strings.CutSuffix(name, suffix); is {
			f, ok = all[base]
			return f, suffix, ok && f.Type == command.Histogram
		}
	}
	return f, "", false
}

// TestRules: each rule asks for metrics and labels that processes have, and each alert has a
// severity, an explanation, and a runbook with the sections that an operator reads.
func TestRules(t *testing.T) {
	known, err := ByName()
	if err != nil {
		t.Fatal(err)
	}
	all := rules(t)
	recorded := map[string]bool{}
	for _, r := range all {
		recorded[r.Record] = true
	}
	runbooks := runbookSections(t)
	alerts := 0
	for _, r := range all {
		checkExpr(t, known, recorded, r.Alert+r.Record, r.Expr)
		if r.Alert == "" {
			continue
		}
		alerts++
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || r.Annotations["summary"] == "" ||
			r.Annotations["description"] == "" ||
			!strings.HasSuffix(r.Annotations["runbook_url"], "/runbooks.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("alert %s lacks something: %+v", r.Alert, r)
		}
		// Its cost, what to ask, the cure, and what shows that it worked.
		cost, rest, asks := strings.Cut(runbooks[r.Alert], "**Ask:**")
		_, cure, cures := strings.Cut(rest, "**Cure:**")
		if !asks || !cures || cost == "" || !strings.Contains(cure, "**Check:**") {
			t.Errorf("the runbook of %s lacks a part: %q", r.Alert, runbooks[r.Alert])
		}
		delete(runbooks, r.Alert)
	}
	if alerts < 20 {
		t.Errorf("%d alerts", alerts)
	}
	for name := range runbooks {
		t.Errorf("the runbook %s is of no alert", name)
	}
}

// labelName matches a label that an expression selects or groups by.
var labelName = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)

// checkExpr checks the metrics of an expression, and the labels that it selects.
func checkExpr(t *testing.T, known map[string]command.Family, recorded map[string]bool, where, expr string) {
	t.Helper()
	labels := map[string]bool{"job": true, "instance": true, "le": true}
	for _, name := range metricName.FindAllString(expr, -1) {
		if strings.Contains(name, ":") {
			if !recorded[name] {
				t.Errorf("%s: no rule records %s", where, name)
			}
			for _, l := range []string{"pool", "cell", "tier"} {
				labels[l] = true
			}
			continue
		}
		f, suffix, ok := sampled(known, name)
		if !ok {
			t.Errorf("%s: no process has a series %s", where, name)
			continue
		}
		for _, l := range f.Labels {
			labels[l] = true
		}
		counts := f.Type == command.Counter || suffix != ""
		rated := regexp.MustCompile(`(rate|increase)\(` + regexp.QuoteMeta(name) + `[{[]`).MatchString(expr)
		if counts != rated && !strings.Contains(expr, " offset ") { // a difference of a counter is one, too
			t.Errorf("%s: %s is a %s, and rate or increase is applied: %v", where, name, f.Type, rated)
		}
		if suffix == "_bucket" && !strings.Contains(expr, "le") {
			t.Errorf("%s: buckets of %s without le", where, name)
		}
	}
	for _, l := range labelName.FindAllStringSubmatch(expr, -1) {
		if !labels[l[1]] {
			t.Errorf("%s: no series of %s has the label %s", where, expr, l[1])
		}
	}
}

// tool returns the path of a program of Prometheus. Without it the test is skipped, or fails if
// EXOSWARM_PROMETHEUS is required, as in the gate.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("EXOSWARM_PROMETHEUS") == "required" {
			t.Fatalf("%s is required: install the package prometheus: %v", name, err)
		}
		t.Skipf("%v: install the package prometheus to run this test", err)
	}
	return path
}

// TestPromtool: Prometheus accepts rules and configuration, and the rules pass their unit tests, in
// which each alert fires and clears and each recording rule has its value.
func TestPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
	run("check", "config", "prometheus.yaml")
	if out := run("test", "rules", "rules_test.yaml"); !strings.Contains(out, "SUCCESS") {
		t.Errorf("the unit tests of the rules: %s", out)
	}
	data, err := os.ReadFile(filepath.Join(folder, "rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if name := r.Alert; name != "" {
			fires := strings.Contains(string(data), `ALERTS{alertname="`+name+`",alertstate="firing",severity="`)
			clears := regexp.MustCompile(`ALERTS\{alertname="` + name + `",alertstate="firing"\}\n *eval_time: \S+` +
				`\n *exp_samples: \[\]`).
				Match(data)
			if !fires || !clears {
				t.Errorf("alert %s has no unit test: fires %v, clears %v", name, fires, clears)
			}
		} else if !strings.Contains(string(data), "expr: '"+r.Record+"'") {
			t.Errorf("recording rule %s has no unit test", r.Record)
		}
	}
}
