package gpuprocess

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestZZ(t *testing.T) {
	r := newRig(t)
	const n = 40
	for k := range n {
		r.logs(t, fmt.Sprint("s", k), nil)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g := runtime.NumGoroutine()
	rss := func() string { b, _ := os.ReadFile("/proc/self/status"); return string(b) }
	fmt.Println(g, rss()[300:1100])
	r.start(t, gpuagents.Options{OpenShards: 100, Checkpoints: checkpointsIn(t.TempDir())})
	for k := range n {
		r.put(t, fmt.Sprint("s", k), byAgent)
		r.told(t, fmt.Sprint("s", k), 1, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)})
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	fmt.Printf("goroutines %d per shard, heap %d KB per shard\n", (runtime.NumGoroutine()-g)/n, (after.HeapAlloc-before.HeapAlloc)>>10/n)
	fmt.Println(rss()[300:1100])
	f, _ := os.Create("/tmp/h5/g.txt")
	pprof.Lookup("goroutine").WriteTo(f, 1)
	f.Close()
	f, _ = os.Create("/tmp/h5/heap.prof")
	pprof.Lookup("heap").WriteTo(f, 0)
	f.Close()
}
