package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// letters are dead letters. Letters of the kind bad are refused, and letters that fail again are
// appended.
type letters struct{ all []jobs.DeadLetter }

func (l *letters) List(_ context.Context, _ jobs.DeadFilter, fn func(jobs.DeadLetter) bool) error {
	for i := 0; i < len(l.all); i++ {
		if !fn(l.all[i]) {
			return nil
		}
	}
	return nil
}

func (l *letters) Redrive(_ context.Context, d jobs.DeadLetter) error {
	if d.Kind == "bad" {
		return fmt.Errorf("job %s: refused", d.ID)
	}
	l.all = append(l.all, jobs.DeadLetter{ID: d.ID, Seq: l.all[len(l.all)-1].Seq + 1}) // it fails at once
	return nil
}

// TestRedrive: letters that are refused do not stop the others, their errors are bounded, and a job
// that fails again at once is queued once.
func TestRedrive(t *testing.T) {
	l := &letters{}
	for i := range 40 {
		kind := "good"
		if i%4 != 0 {
			kind = "bad"
		}
		l.all = append(l.all, jobs.DeadLetter{ID: fmt.Sprint(i), Kind: kind, Seq: uint64(i + 1)})
	}
	n, err := Redrive(t.Context(), l, jobs.DeadFilter{})
	if n != 10 || err == nil || strings.Count(err.Error(), "refused") != 20 ||
		!strings.Contains(err.Error(), "and 10 more") {
		t.Errorf("%d jobs are queued, error %v; want 10, and 20 of 30 errors in full", n, err)
	}
}
