package gpuprocess

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSwarmsShareFrames: three swarms, each with more pages than the device and host memory have
// frames, and small ones that come and go beside them, are all served by a process, and answer as
// on one that has room for all.
func TestSwarmsShareFrames(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, 0)
	const rounds, large = 4, 3
	var ranges [][2]int
	for i := range rounds {
		ranges = append(ranges, [2]int{0, cold}, [2]int{i, i + 2})
	}
	all := observationsOf(ranges...)
	answers, pages := r.undisturbed(t, all)
	dir := t.TempDir()
	a := r.spawn(t, "--data-dir", dir, "--page-memory", fmt.Sprint(8*coldPage), "--host-page-memory",
		fmt.Sprint(3*coldPage))
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	for i := range rounds {
		for k := range large {
			id := fmt.Sprint("large", k)
			if i == 0 {
				r.announceCold(t, id, all[:2])
			} else {
				r.append(t, id, 2*i, all[2*i:2*i+2])
			}
		}
		for k := range large {
			r.answered(t, fmt.Sprint("large", k), 2*i+2)
		}
		small := fmt.Sprint("small", i)
		r.logs(t, small, nil)
		r.put(t, small, byAgent)
		r.told(t, small, 1, tick)
		if i%2 == 0 {
			r.remove(t, small)
		}
	}
	a.end(syscall.SIGTERM)
	for k := range large {
		r.same(t, fmt.Sprint("large", k), checkpointsIn(filepath.Join(dir, "checkpoints")), answers, pages)
	}
}
