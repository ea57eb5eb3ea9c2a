package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestMachineLoads: serve --watch-this-machine finds real loads of this machine within 30 s, each
// with its metric. The loads are far above what other tests make at the time. One that comes while
// the machine is as loud by itself may be tried again.
func TestMachineLoads(t *testing.T) {
	testkit.OnlyLong(t)
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	const tries = 3
	_, _, api, base := startServe(t, t.TempDir(), "--watch-this-machine", "--fast")
	decided := func() uint64 {
		for _, w := range stateOf(t, api, base).Watches {
			if w.Name == "this-machine" {
				return w.Decisions
			}
		}
		return 0
	}
	// Four minutes of five metrics: the first score needs two.
	for decided() < 4*60*5 {
		letPass(t.Context(), time.Second)
	}
	for _, load := range []struct {
		metric string
		make   func(ctx context.Context, t *testing.T)
	}{
		{"runnable_processes", burn}, {"network_mib_s", transfer}, {"memory_percent", hold},
	} {
		found := ""
		for try := 1; try <= tries && found == ""; try++ {
			began := time.Now()
			ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
			done := make(chan struct{})
			go func() {
				defer close(done)
				load.make(ctx, t)
			}()
			for ctx.Err() == nil && found == "" {
				letPass(ctx, time.Second/2)
				found = sinceThen(stateOf(t, api, base), load.metric, began)
			}
			end()
			<-done
			t.Logf("%s, try %d: %q after %v", load.metric, try, found, time.Since(began).Round(time.Second))
			letPass(t.Context(), time.Minute) // for hold_off
		}
		if found == "" {
			t.Errorf("the load of %s is not found in %d tries", load.metric, tries)
		}
	}
}

// sinceThen describes an incident of a metric of this machine that began after a time; empty: there
// is none.
func sinceThen(s *ops.State, metric string, then time.Time) string {
	for _, in := range s.Incidents {
		begin, err := time.Parse(time.RFC3339Nano, in.Begin)
		if err == nil && in.Watch == "this-machine" && in.Entity == metric && !begin.Before(then) {
			return fmt.Sprintf("%.0f %% at %s", 100*in.Score, in.Begin)
		}
	}
	return ""
}

// burn runs twenty processes for each processor until ctx ends. They yield to everybody else.
func burn(ctx context.Context, t *testing.T) {
	var all []*osexec.Cmd
	for range 20 * runtime.NumCPU() {
		cmd := osexec.CommandContext(ctx, "nice", "-n", "19", "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Errorf("start a burner: %v", err)
			break
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		_ = cmd.Wait()
	}
}

// transfer sends over loopback as fast as it goes until ctx ends.
func transfer(ctx context.Context, t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Errorf("net.Listen: %v", err)
		return
	}
	defer l.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Errorf("net.Dial: %v", err)
		return
	}
	defer func() { <-read }()
	defer c.Close()
	for block := make([]byte, 1<<20); ctx.Err() == nil; {
		if _, err := c.Write(block); err != nil {
			t.Errorf("c.Write: %v", err)
			return
		}
	}
}

// hold writes to half of the free memory, at most 8 GiB, and holds it until ctx ends. In its first
// minutes the detector has seen other tests take half of that.
func hold(ctx context.Context, t *testing.T) {
	proc, err := procfs.NewFS("/proc")
	if err != nil {
		t.Errorf("procfs.NewFS: %v", err)
		return
	}
	free, err := proc.Meminfo()
	if err != nil {
		t.Errorf("proc.Meminfo: %v", err)
		return
	}
	held := make([]byte, min(*free.MemAvailable<<10/2, 8<<30))
	for i := 0; i < len(held) && ctx.Err() == nil; i += os.Getpagesize() {
		held[i] = 1
	}
	<-ctx.Done()
	runtime.KeepAlive(held)
}
