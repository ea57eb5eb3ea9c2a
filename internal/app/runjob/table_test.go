package runjob

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// TestTableOrder: of many series the table shows those with anomalies, the most first, and the
// others in their order.
func TestTableOrder(t *testing.T) {
	var all []cpuagents.SeriesSummary
	for i := range mostRows + 10 {
		all = append(all, cpuagents.SeriesSummary{
			Name:      fmt.Sprintf("s%03d", i),
			Anomalies: uint64(max(0, i-mostRows-7)),
		})
	}
	dest, err := userfile.NewDestination(userfile.Paths{Output: filepath.Join(t.TempDir(), "d.ndjson")})
	if err != nil {
		t.Fatalf("destination: %v", err)
	}
	var out bytes.Buffer
	printTable(&out, &cpuagents.StreamResult{}, all, dest, &report.Header{}, "")
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"s069", "s068", "s000", "s001"} {
		if !strings.HasSuffix(lines[i+1], want) {
			t.Errorf("line %d is %q, want series %s", i+1, lines[i+1], want)
		}
	}
	// Half of the series with few rows are a warning, and fewer are none.
	for i := range all {
		all[i].Observations = uint64(10 - i%2)
	}
	for want := range 2 {
		out.Reset()
		printTable(&out, &cpuagents.StreamResult{}, all, dest, &report.Header{}, "")
		if got := strings.Count(out.String(), "warning: "+strconv.Itoa(len(all)/2)+" of "); got != 1-want {
			t.Errorf("%d warnings, want %d\n%s", got, 1-want, out.String())
		}
		all[1].Observations = 10
	}
}
