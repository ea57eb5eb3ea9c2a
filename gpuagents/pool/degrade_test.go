package pool

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

// epoch is when tests begin.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// happen does an event of a scenario.
func happen(d *degradation, now *time.Time, what, arg string) error {
	switch what {
	case "ok", "fail":
		n := 0
		if _, err := fmt.Sscan(arg, &n); err != nil {
			return err
		}
		for range n {
			d.done(*now, what == "fail")
		}
	case "wait":
		pass, err := time.ParseDuration(arg)
		if err != nil {
			return err
		}
		*now = now.Add(pass)
	case "sound", "broken":
		d.probed(*now, what == "sound")
	case "lost":
		d.lost(*now)
	default:
		return fmt.Errorf("no event %q", what)
	}
	d.lower(*now)
	return nil
}

// TestDegradation: the scenarios of testdata.
func TestDegradation(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoError(t, "os.ReadFile", err)
		d, now := &degradation{Patience: Patience{}.withDefaults()}, epoch
		for i, line := range strings.Split(string(text), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			words := strings.Fields(line)
			arg := ""
			if len(words) == 4 {
				arg = words[1]
			}
			if err := happen(d, &now, words[0], arg); err != nil {
				t.Fatalf("%s:%d: %v, want a valid line", file, i+1, err)
			}
			failed, of := d.share(now)
			if got, want := fmt.Sprintf("%v %d/%d", d.level, failed, of),
				strings.Join(words[len(words)-2:], " "); got != want {
				t.Errorf("%s:%d: %s: %s, want %s", file, i+1, strings.Join(words[:len(words)-2], " "), got, want)
			}
		}
	}
}

// TestDegradationProperties: random events. The level is at least what the share of the window
// calls for, which a list of all operations says too; it goes down by one at a time, never sooner
// than the quiet time after a failure or another change, and from the host only to a device whose
// last probe was sound.
func TestDegradationProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Patience{}.withDefaults()
		d, now := &degradation{Patience: p}, epoch
		var all []sample // since the window was last forgotten
		last, sound := epoch, false
		for range rapid.IntRange(1, 150).Draw(t, "events") {
			before := d.level
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				for range rapid.IntRange(1, 400).Draw(t, "ok") {
					d.done(now, false)
					all = append(all, sample{now, false})
				}
			case 1:
				for range rapid.IntRange(1, 8).Draw(t, "fail") {
					d.done(now, true)
					all = append(all, sample{now, true})
				}
				last, sound = now, false
			case 2:
				sound = rapid.Bool().Draw(t, "sound")
				d.probed(now, sound)
			case 3:
				d.lost(now)
				last, sound = now, false
			default:
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			}
			up := d.level
			if up < before {
				t.Fatalf("from %v to %v by an event", before, up)
			}
			if up > before {
				last, sound = now, false
			}
			failed, n := 0, 0
			for i := len(all) - 1; i >= 0 && n < windowOps && now.Sub(all[i].at) <= p.Window; i-- {
				if n++; all[i].failed {
					failed++
				}
			}
			if f, of := d.share(now); f != failed || of != max(n, leastOps) {
				t.Fatalf("%d of %d failed, want %d of %d", f, of, failed, max(n, leastOps))
			}
			if d.lower(now) {
				if d.level != up-1 || now.Sub(last) < p.Quiet || up == OnHost && !sound {
					t.Fatalf("from %v to %v, %v after the last failure or change, sound %v", up, d.level, now.Sub(last),
						sound)
				}
				all, last, sound = nil, now, false
			}
		}
	})
}

// TestDegradationMonotone: an operation that fails instead of ending well makes no level better.
func TestDegradationMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, now := &degradation{Patience: Patience{}.withDefaults()},
			&degradation{Patience: Patience{}.withDefaults()}, epoch
		for range rapid.IntRange(1, 3000).Draw(t, "operations") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
			kind := rapid.IntRange(0, 60).Draw(t, "kind") // of 61: one fails in both, one in b alone
			a.done(now, kind == 0)
			b.done(now, kind <= 1)
			if b.level < a.level {
				t.Fatalf("%v with more failures, %v with fewer", b.level, a.level)
			}
		}
	})
}
