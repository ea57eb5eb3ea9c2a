// Package deploy_test checks the files that operators copy.
package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestRules checks that the file of alerts has the form of a Prometheus rule file, and that each
// alert has an explanation, a severity, and only metrics and a name that docs/operations.md
// explains.
func TestRules(t *testing.T) {
	data, err := os.ReadFile("prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`exoswarm_[a-z_]+`)
	n := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			n++
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %s: severity %q, summary %q, description %q: one is missing", r.Alert,
					r.Labels["severity"], r.Annotations["summary"], r.Annotations["description"])
			}
			if !strings.Contains(string(doc), "`"+r.Alert+"`") {
				t.Errorf("alert %s is not explained in docs/operations.md", r.Alert)
			}
			names := metric.FindAllString(r.Expr, -1)
			if len(names) == 0 {
				t.Errorf("alert %s asks for no metric of Exoswarm: %s", r.Alert, r.Expr)
			}
			for _, name := range names {
				if !strings.Contains(string(doc), name) {
					t.Errorf("alert %s: docs/operations.md explains no metric %s", r.Alert, name)
				}
			}
		}
	}
	if n == 0 {
		t.Error("the file has no alert")
	}
}
