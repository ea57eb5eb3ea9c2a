//go:build cuda

package driver

import (
	"fmt"
	"testing"
	"time"
)

// TestXidLog: every reader gets all Xids, a code that comes again is one of the codes and two of
// the counts, and an old one is in the counts alone.
func TestXidLog(t *testing.T) {
	var x xidLog
	now := time.Now()
	if codes, counts := x.recent(now); len(codes) != 0 || len(counts) != 0 {
		t.Errorf("before the first: %v, %v", codes, counts)
	}
	x.add(79, now.Add(-xidMemory))
	x.add(63, now)
	x.add(63, now)
	x.add(31, now.Add(time.Second-xidMemory))
	for range 2 {
		codes, counts := x.recent(now)
		if got := fmt.Sprint(codes, counts); got != "[31 63] map[31:1 63:2 79:1]" {
			t.Errorf("%s", got)
		}
		counts[63] = 0 // is the caller's
	}
}
