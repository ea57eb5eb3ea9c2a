package gpuprocess

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// kept returns the folders of the first seat that hold something of a swarm.
func (l *cycle) kept(s *cycleSwarm) (dirs []string) {
	l.t.Helper()
	// one that is just being removed is none
	_ = filepath.WalkDir(l.seats[0].dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), s.record.Key()) {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// until waits for a condition.
func (l *cycle) until(what string, met func() bool) {
	l.t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(cycleDeaf); !met(); <-look.C {
		if time.Now().After(end) {
			l.t.Fatalf("%s has not come\n%s", what, l.String())
		}
	}
}

// TestLogsDeleted deletes the logs of a swarm whose record stays. Its checkpoint stays with the
// record: it is of use when the logs are restored, and one that does not belong to the logs that
// come is not used. It goes with the record, and when an agent starts and there is still no log.
func TestLogsDeleted(t *testing.T) {
	testkit.OnlyLong(t)
	l := newCycle(t)
	ctx := context.WithoutCancel(t.Context())
	lose := func(s *cycleSwarm) {
		t.Helper()
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := l.conn.Swarms.Log(s.record.Key(), 0, d).Delete(ctx); err != nil {
				t.Fatalf("l.conn.Swarms.Log().Delete: %v", err)
			}
		}
	}
	for _, step := range []string{"start a", "create x", "observe x", "tick x", "answered x"} {
		l.do(step)
	}
	x := l.swarms["x"]
	l.until("a checkpoint", func() bool {
		return strings.Contains(l.String(), "checkpoint stored") &&
			len(l.kept(x)) > 0
	})
	lose(x)
	l.until("the end of the shard", func() bool { return l.seats[0].agent.Shards() == 0 })
	if len(l.kept(x)) == 0 {
		t.Error("the checkpoint went with the logs")
	}
	// Logs under the same key with another history: the entry with the number of the checkpoint
	// differs.
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := l.conn.Swarms.Log(x.record.Key(), 0, d).Create(ctx); err != nil {
			t.Fatalf("l.conn.Swarms.Log().Create: %v", err)
		}
	}
	x.entries = nil
	for _, step := range []string{"tick x", "tick x", "observe x", "observe x", "tick x", "answered x"} {
		l.do(step)
	}
	l.check()
	l.do("delete x")
	l.until("the end of the checkpoint", func() bool { return len(l.kept(x)) == 0 })

	l.do("create y")
	l.do("answered y")
	y := l.swarms["y"]
	l.until("a checkpoint", func() bool { return len(l.kept(y)) > 0 })
	lose(y)
	l.until("the end of the shard", func() bool { return l.seats[0].agent.Shards() == 0 })
	l.do("delete y") // while no log is there
	l.until("the end of the checkpoint", func() bool { return len(l.kept(y)) == 0 })

	l.do("create x")
	l.do("answered x")
	x = l.swarms["x"]
	l.until("a checkpoint", func() bool { return len(l.kept(x)) > 0 })
	l.do("kill a")
	lose(x)
	l.do("start a")
	l.until("the end of the checkpoint", func() bool { return len(l.kept(x)) == 0 })
	l.do("delete x")
}
