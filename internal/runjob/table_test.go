package runjob

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/runoutput"
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
	dest, err := runoutput.New(runoutput.Paths{Output: filepath.Join(t.TempDir(), "d.ndjson")})
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
}
