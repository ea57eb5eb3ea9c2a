package serveprocess

import (
	"bytes"
	"strings"
	"testing"
)

// TestMetricsCommand: the command describes each family of each process once, or the families that
// it is asked for.
func TestMetricsCommand(t *testing.T) {
	t.Parallel()
	describe := func(args ...string) string {
		var out bytes.Buffer
		c := MetricsCommand()
		c.SetArgs(args)
		c.SetOut(&out)
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	all, err := Processes()
	if err != nil {
		t.Fatal(err)
	}
	text, n := "\n"+describe(), 0
	for _, p := range all {
		for _, f := range p.Families {
			n++
			if !strings.Contains(text, "\n"+f.Name+": "+f.Type) || !strings.Contains(text, "\n    "+f.Help+"\n") {
				t.Errorf("%s is not described", f.Name)
			}
		}
	}
	if got := strings.Count(text, "\nexoswarm_"); got != n || n < 100 {
		t.Errorf("%d families are described of %d", got, n)
	}
	if part := describe("scale_demand"); strings.Count(part, "\n") != 3 ||
		!strings.HasPrefix(part, "# The cluster") || !strings.Contains(part, "exoswarm_scale_demand: gauge by pool") {
		t.Errorf("the description of scale_demand is\n%s", part)
	}
}
