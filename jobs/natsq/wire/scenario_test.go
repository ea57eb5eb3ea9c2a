package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestScenarios runs the scenarios in testdata, each with a new queue. They have two commands:
//
//	weight tenant=T weight=W    sets the weight of a tenant
//	turns count=N jobs=K        takes N turns of K jobs each, 1 by default
//
// The input of turns is the sources that have jobs, a line each: lane, tenant and kind. Its output
// is a line for each run of turns of one source, with the number of turns, and then the sum of the
// turns of each source. go test -rewrite writes the outputs again.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		q := NewFairQueue()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "weight":
				var tenant string
				var weight int
				d.ScanArgs(t, "tenant", &tenant)
				d.ScanArgs(t, "weight", &weight)
				q.SetWeight(tenant, float64(weight))
				return ""
			case "turns":
				count, taken := 0, 1
				d.ScanArgs(t, "count", &count)
				d.MaybeScanArgs(t, "jobs", &taken)
				return takeTurns(q, parseSources(t, d), count, taken)
			}
			d.Fatalf(t, "command %q: want weight or turns", d.Cmd)
			return ""
		})
	})
}

// parseSources reads the sources of a command, a line each: lane, tenant and kind.
func parseSources(t *testing.T, d *datadriven.TestData) (all []Source) {
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		if len(f) != 3 {
			d.Fatalf(t, "source %q: want lane, tenant and kind", line)
		}
		all = append(all, Source{Pool: jobs.PoolCPU, Lane: jobs.Lane(f[0]), Tenant: f[1], Kind: f[2]})
	}
	return all
}

// takeTurns takes turns of a queue whose sources always have jobs, and describes them.
func takeTurns(q *FairQueue, ready []Source, count, taken int) string {
	name := func(s Source) string { return fmt.Sprintf("%s %s %s", s.Lane, s.Tenant, s.Kind) }
	var b strings.Builder
	sums, last, run := map[Source]int{}, Source{}, 0
	for range count {
		s, ok := q.Next(ready)
		if !ok {
			fmt.Fprintln(&b, "nothing is ready")
			return b.String()
		}
		if run > 0 && s != last {
			fmt.Fprintf(&b, "%d %s\n", run, name(last))
			run = 0
		}
		q.Take(s, taken)
		last, run = s, run+1
		sums[s]++
	}
	fmt.Fprintf(&b, "%d %s\nsums:\n", run, name(last))
	for _, s := range ready {
		fmt.Fprintf(&b, "%d %s\n", sums[s], name(s))
	}
	return b.String()
}
