package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// recorder notes the sizes of batches, and jobs that come alone.
type recorder struct {
	batches []int
	alone   int
	err     error // of batches
}

func (r *recorder) Submit(_ context.Context, j jobs.Job) (string, error) {
	r.alone++
	return j.ID, nil
}

func (r *recorder) SubmitBatch(_ context.Context, batch []jobs.Job) (ids []string, err error) {
	if r.err != nil {
		return nil, r.err
	}
	r.batches = append(r.batches, len(batch))
	for _, j := range batch {
		ids = append(ids, j.ID)
	}
	return ids, nil
}

// TestSubmitLines: batches are bounded by jobs, parents and bytes, and have one pool; a delayed job
// is submitted alone.
func TestSubmitLines(t *testing.T) {
	line := func(i int, pool, more string) string {
		return fmt.Sprintf(`{"id":"j%d","pool":"%s","kind":"k","spec":1%s}`+"\n", i, pool, more)
	}
	many := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i, "cpu", more))
		}
		return b.String()
	}
	later := `,"not_before":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`
	for _, c := range []struct {
		name, text string
		batches    []int
		alone      int
	}{
		{"nothing", "", []int{0}, 0},
		{"empty lines", "\n" + line(1, "cpu", "") + "\n\n", []int{1}, 0},
		{"one more than a batch", many(jobs.MaxBatch+1, ""), []int{jobs.MaxBatch, 1}, 0},
		{"parents count", many(jobs.MaxBatch, `,"after":["p"]`), []int{jobs.MaxBatch / 2, jobs.MaxBatch / 2}, 0},
		{"a delayed job", line(1, "cpu", "") + line(2, "cpu", later) + line(3, "cpu", ""), []int{2}, 1},
	} {
		r, ids := &recorder{}, 0
		err := submitLines(t.Context(), r, "test", strings.NewReader(c.text), func(string) error { ids++; return nil })
		if err != nil || !slices.Equal(r.batches, c.batches) || r.alone != c.alone {
			t.Errorf("%s: batches %v and %d alone, error %v; want %v and %d", c.name, r.batches, r.alone, err,
				c.batches, c.alone)
		}
		if want := strings.Count(c.text, `"id"`); ids != want {
			t.Errorf("%s: %d ids, want %d", c.name, ids, want)
		}
	}
	long := &recorder{}
	if err := submitLines(t.Context(), long, "test", strings.NewReader(strings.Repeat(
		fmt.Sprintf(`{"pool":"cpu","kind":"k","spec":%q}`+"\n", strings.Repeat("x", batchBytes/3)), 5)),
		func(string) error { return nil }); err != nil || !slices.Equal(long.batches, []int{2, 2, 1}) {
		t.Errorf("long lines: batches %v, error %v; want two lines in each", long.batches, err)
	}
}

// TestSubmitLinesErrors: an error names the stream and the line.
func TestSubmitLinesErrors(t *testing.T) {
	good := `{"pool":"cpu","kind":"k","spec":1}` + "\n"
	failed := errors.New("no connection")
	for _, c := range []struct {
		name, text string
		err        error
		want       string
	}{
		{"not JSON", good + "{\n", nil, "f line 2"},
		{"a line that is too long", strings.Repeat("x", jobs.MaxMessage+1), nil, "submit that job with --spec"},
		{"a batch that fails", good, failed, "f, last batch: no connection"},
	} {
		err := submitLines(t.Context(), &recorder{err: c.err}, "f", strings.NewReader(c.text),
			func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if err := submitLines(t.Context(), &recorder{}, "f", strings.NewReader(good),
		func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a receiver of ids that fails: error %v, want its own", err)
	}
}
