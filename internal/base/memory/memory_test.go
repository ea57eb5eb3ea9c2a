package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/exoswarm/exoswarm/internal/base/memory"
)

func TestDetect(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const info = "MemTotal:       24684000 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n"
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  memory.Limit
	}{
		"machine": {fstest.MapFS{"proc/meminfo": file(info)}, memory.Limit{Bytes: 16 << 30}},
		"no limit": {fstest.MapFS{
			"proc/meminfo": file(info), "proc/self/cgroup": file("0::/a\n"),
			"sys/fs/cgroup/a/memory.max": file("max\n"),
		}, memory.Limit{Bytes: 16 << 30}},
		"own": {fstest.MapFS{
			"proc/meminfo": file(info), "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1073741824\n"),
		}, memory.Limit{Bytes: 1 << 30, Container: true}},
		"parent": {
			fstest.MapFS{
				"proc/meminfo": file(info), "proc/self/cgroup": file("0::/a/b\n"),
				"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("2147483648\n"),
			},
			memory.Limit{Bytes: 2 << 30, Container: true},
		},
		"path of a host": {fstest.MapFS{
			"proc/meminfo": file(info), "proc/self/cgroup": file("0::/kubepods/x\n"),
			"sys/fs/cgroup/memory.max": file("1073741824\n"),
		}, memory.Limit{Bytes: 1 << 30, Container: true}},
		"version 1": {
			fstest.MapFS{
				"proc/meminfo":     file(info),
				"proc/self/cgroup": file("5:cpu,memory:/d\n3:pids:/\n"),
				"sys/fs/cgroup/memory/d/memory.limit_in_bytes": file("536870912\n"),
			},
			memory.Limit{Bytes: 512 << 20, Container: true},
		},
		"version 1, none": {fstest.MapFS{
			"proc/meminfo": file(info), "proc/self/cgroup": file("5:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, memory.Limit{Bytes: 16 << 30}},
	} {
		if got, err := memory.Detect(c.files); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	if _, err := memory.Detect(fstest.MapFS{}); err == nil {
		t.Error("a machine without /proc has a limit")
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBudget(10)
		if !b.Try(6) || b.Try(5) {
			t.Fatal("Try")
		}
		if err := b.Take(t.Context(), 11); !errors.Is(err, memory.ErrTooLarge) {
			t.Fatalf("more than all: %v", err)
		}
		got := make(chan int, 3)
		for i, n := range []int64{8, 2} { // the second would fit, and must not overtake the first
			go func() {
				if err := b.Take(t.Context(), n); err != nil {
					t.Error(err)
				}
				got <- i
			}()
			synctest.Wait()
		}
		if len(got) > 0 || b.Try(1) {
			t.Fatal("somebody has overtaken")
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- b.Take(ctx, 1) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatalf("the end of a wait: %v", err)
		}
		b.Give(6)
		synctest.Wait()
		if len(got) != 2 || b.Used() != 10 {
			t.Fatalf("%d served, %d used", len(got), b.Used())
		}
	})
}

func TestText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 3 << 29: "1.5 GiB",
		1000 << 20: "0.977 GiB",
	} {
		if got := memory.Text(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
