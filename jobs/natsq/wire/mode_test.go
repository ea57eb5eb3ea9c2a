package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestMode: the faster of the two modes is chosen by measurement, and the slower one is tried ever
// more rarely.
func TestMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		var m PublishMode
		serve := func(single, whole time.Duration, groups int) (together int) {
			for range groups {
				as := m.Atomic(n)
				d := n * single
				if as {
					d, together = whole, together+1
				}
				time.Sleep(d)
				m.Observe(as, n, d)
			}
			return together
		}
		if !m.Atomic(256) || m.Atomic(10) {
			t.Error("before anything is known a synced server is supposed")
		}
		// A server that does not sync each message: found out after a second.
		if got := serve(15*time.Microsecond, 3*time.Millisecond, 5000); got == 0 || got > 340 {
			t.Errorf("%d atomic batches of 5000, though they are slower", got)
		}
		// It becomes one that does: noticed at once, and single messages are tried 6 times in the
		// two minutes that follow.
		if got := serve(250*time.Microsecond, 3500*time.Microsecond, 40_000); got < 39_980 || got == 40_000 {
			t.Errorf("%d atomic batches of 40000, though they are faster", got)
		}
		if got := serve(15*time.Microsecond, 3*time.Millisecond, 100_000); got > 70_000 { // the last pause is a minute
			t.Errorf("%d atomic batches of 100000, though they are slower again", got)
		}
		for few := range MinGroup {
			if m.Atomic(few) {
				t.Errorf("an atomic batch of %d", few)
			}
		}
	})
}
