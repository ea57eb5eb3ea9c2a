package serveprocess_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestNames: names, units and labels follow the conventions of Prometheus, and every family says
// what it means in a sentence.
func TestNames(t *testing.T) {
	all, err := ByName()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Errorf("%d families: some processes do not list theirs", len(all))
	}
	name := regexp.MustCompile(`^exoswarm_[a-z][a-z0-9_]*[a-z0-9]$`)
	banned := map[string]bool{
		"job": true, "instance": true, "le": true, "quantile": true, "swarm": true, "job_id": true, "group": true,
		"agent": true, "id": true,
	}
	for _, f := range all {
		if !name.MatchString(f.Name) {
			t.Errorf("%s is no good name", f.Name)
		}
		if total := strings.HasSuffix(f.Name, "_total"); total != (f.Type == command.Counter) {
			t.Errorf("%s is a %s: a counter ends with _total, and nothing else does", f.Name, f.Type)
		}
		for _, scaled := range []string{"_ms", "_milliseconds", "_us", "_ns", "_kb", "_mib", "_percent", "_count"} {
			if strings.HasSuffix(strings.TrimSuffix(f.Name, "_total"), scaled) {
				t.Errorf("%s has no base unit", f.Name)
			}
		}
		if f.Type == command.Histogram && f.Unit() != "seconds" && f.Name != "exoswarm_swarm_batch_observations" {
			t.Errorf("histogram %s has no unit", f.Name)
		}
		if !strings.HasSuffix(f.Help, ".") || strings.ToUpper(f.Help[:1]) != f.Help[:1] {
			t.Errorf("%s is explained as %q, want a sentence", f.Name, f.Help)
		}
		for _, l := range f.Labels {
			if banned[l] {
				t.Errorf("%s has the label %s, which Prometheus has or which is not bounded", f.Name, l)
			}
		}
	}
}
