package gpuprocess

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestPrefetchOfProcess: an agent that fetches pages ahead, of a swarm that fits neither on its
// device nor in its host memory, gives the answers of one that has room for all, in order and not,
// and over kills.
func TestPrefetchOfProcess(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r := newRigAt(t, 0)
	var ranges [][2]int
	for i := range 60 { // all groups, or the next two in order
		if i%20 == 0 {
			ranges = append(ranges, [2]int{0, cold})
			continue
		}
		first := 2 * i % cold
		ranges = append(ranges, [2]int{first, first + 2})
	}
	all := observationsOf(ranges...)
	answers, pages := r.undisturbed(t, all)
	dir := t.TempDir()
	flags := []string{
		"--data-dir", dir, "--prefetch", "auto", "--page-memory", fmt.Sprint(6 * coldPage),
		"--host-page-memory", fmt.Sprint(4 * coldPage),
	}
	r.announceCold(t, "cold", all[:20])
	a := r.spawn(t, flags...)
	r.answered(t, "cold", 20)
	r.kill(t, a)
	a = r.spawn(t, flags...)
	for n := 20; n < len(all); n++ {
		if n >= 41 {
			<-time.After(
				150 * time.Millisecond,
			) // the load of the test: a page that was used in the last 100 ms keeps its frame
		}
		r.append(t, "cold", n, all[n:n+1])
		r.answered(t, "cold", n+1)
	}
	if n := r.metric(t, "exoswarm_swarm_prefetch_pages_total"); n == 0 {
		t.Error("no page was fetched ahead")
	}
	a.end(syscall.SIGTERM)
	r.same(t, "cold", checkpointsIn(filepath.Join(dir, "checkpoints")), answers, pages)
}

// metric returns the sum of a metric of the child over its labels.
func (r *rig) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	resp, err := http.Get(metricsURL.FindStringSubmatch(r.String())[1])
	if err != nil {
		t.Fatalf("http.Get: %v", err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("io.ReadAll: %v", err)
	}
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllSubmatch(text, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatalf("strconv.ParseFloat: %v", err)
		}
		sum += v
	}
	return sum
}
