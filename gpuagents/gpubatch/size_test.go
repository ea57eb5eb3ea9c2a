package gpubatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// The limits of batches of observations.
const (
	least = 65_536
	most  = 1 << 20
)

func observations(bound time.Duration) Limits {
	return Limits{Least: least, Most: most, Bound: bound}
}

// TestSizing: the scenarios of testdata/sizing.
func TestSizing(t *testing.T) {
	files, err := filepath.Glob("testdata/sizing/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoError(t, "os.ReadFile", err)
		now := epoch
		s := NewSize(observations(100*time.Millisecond), now)
		for i, line := range strings.Split(string(text), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			var n, rows, want int
			var took, rest time.Duration
			var tookText, restText, fullText string
			if _, err := fmt.Sscanf(line, "%d x %d rows took %s then idle %s %s most %d", &n, &rows, &tookText,
				&restText, &fullText, &want); err != nil {
				t.Fatalf("%s:%d: %v, want a valid line", file, i+1, err)
			}
			if took, err = time.ParseDuration(tookText); err == nil {
				rest, err = time.ParseDuration(restText)
			}
			if err != nil || fullText != "full" && fullText != "all" {
				t.Fatalf("%s:%d: %v, want durations, and full or all", file, i+1, err)
			}
			for range n {
				s.Done(now, now.Add(took), rows, fullText == "full")
				now = now.Add(took + rest)
			}
			if s.most != want {
				t.Errorf("%s:%d: %s: it is %d", file, i+1, line, s.most)
			}
		}
	}
}

// TestSizingProperties: with random batches the size stays within its limits, as far as the bound
// allows. It grows only if it cut a batch and the device was used for less than 70 % of the window,
// or back to the least size. After a batch that took too long, a batch of the new size takes no
// longer than the bound at the same rate.
func TestSizingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound, now := time.Duration(rapid.IntRange(1, 300).Draw(t, "bound"))*time.Millisecond, epoch
		s := NewSize(observations(bound), now)
		since, busy, full := now, time.Duration(0), false
		for range rapid.IntRange(1, 200).Draw(t, "batches") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "idle")) * time.Microsecond)
			took := time.Duration(rapid.IntRange(0, 400_000).Draw(t, "took")) * time.Microsecond
			rows, ended := rapid.IntRange(0, s.most).Draw(t, "rows"), rapid.Bool().Draw(t, "full")
			before := s.most
			s.Done(now, now.Add(took), rows, ended)
			now, busy, full = now.Add(took), busy+took, full || ended
			share := float64(busy) / float64(max(now.Sub(since), 1))
			late := took > bound
			switch {
			case s.most < 1 || s.most > most:
				t.Fatalf("it is %d", s.most)
			case late && s.most > 1 && time.Duration(float64(took)/float64(max(rows, 1))*float64(s.most)) > bound+
				time.Microsecond:
				t.Fatalf("%d rows took %v, and it is %d", rows, took, s.most)
			case s.most > before && s.most > least && (share >= 0.70 || !full):
				t.Fatalf("from %d to %d, used for %v, full %v", before, s.most, share, full)
			case s.most < before && !late && !ended && s.within == 0 && share <= 0.95:
				t.Fatalf("from %d to %d, used for %v", before, s.most, share)
			case s.most != before && !late && now.Sub(since) < window:
				t.Fatalf("from %d to %d after %v", before, s.most, now.Sub(since))
			}
			if late || now.Sub(since) >= window {
				since, busy, full = now, 0, false
			}
		}
	})
}

// epoch is when tests start.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
