package pagestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// childEnv makes the test binary the victim of TestKill: it names the directory to work in.
const childEnv = "EXOSWARM_PAGESTORE_CHILD"

// diskOptions are a store of two tiers in a directory.
func diskOptions(dir string) pagestore.Options {
	return pagestore.Options{
		PageSize: pageSize,
		Tiers: []pagestore.Tier{
			{Name: "nvme", Dir: filepath.Join(dir, "nvme"), Capacity: 256 << 20, SegmentBytes: 1 << 20},
			{
				Name: "ssd", Dir: filepath.Join(dir, "ssd"), Capacity: 256 << 20, SegmentBytes: 1 << 20,
				Codec: pagestore.Codec{ID: pagestore.LZ4},
			},
		},
	}
}

// childMain works on a store until it is killed, when this process is the child of TestKill: each
// commit writes a few pages of the version that the note says, and is acknowledged on standard
// output. It reports whether it was the child.
func childMain() bool {
	dir := os.Getenv(childEnv)
	if dir == "" {
		return false
	}
	err := func() error {
		s, err := pagestore.Open(diskOptions(dir))
		if err != nil {
			return err
		}
		version := uint64(0)
		if len(s.Note()) > 0 {
			if version, err = strconv.ParseUint(string(s.Note()), 10, 64); err != nil {
				return err
			}
		}
		for {
			version++
			if err := writeVersion(s, version); err != nil {
				return err
			}
			fmt.Println("ack", version)
		}
	}()
	fmt.Println("error", err)
	return true
}

// writeVersion writes the pages of a version, deletes one that is there, and commits.
func writeVersion(s *pagestore.Store, version uint64) error {
	ctx := context.Background()
	for _, page := range pagesOf(version) {
		if err := s.Put(ctx, int(version%2), page, content(page, version), pagestore.Kind{Elem: 4}); err != nil {
			return err
		}
	}
	if gone := goneWith(version); s.Has(gone) {
		if err := s.Delete(ctx, gone); err != nil {
			return err
		}
	}
	_, err := s.Commit(ctx, []byte(fmt.Sprint(version)))
	return err
}

// write does to a world what writeVersion does to a store.
func (w world) write(version uint64) {
	for _, page := range pagesOf(version) {
		w.pages[page] = version
	}
	delete(w.pages, goneWith(version))
}

func goneWith(version uint64) uint64 { return rand.New(rand.NewPCG(version, 78)).Uint64N(120) }

func pagesOf(version uint64) []uint64 {
	rng := rand.New(rand.NewPCG(version, 77))
	return []uint64{rng.Uint64N(40), 40 + rng.Uint64N(40), 80 + rng.Uint64N(40)}
}

// TestKill kills a real process with SIGKILL at random moments and opens its store: every
// acknowledged commit is there, byte for byte, and of the one that ran all or nothing. See scale
// for the full campaign.
func TestKill(t *testing.T) {
	kills := scale(t, "EXOSWARM_KILLS", testkit.Of(20, 8))
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(5, 5))
	var acked uint64
	w := world{pages: map[uint64]uint64{}}
	committed := uint64(0) // what w holds
	for kill := range kills {
		last, err := killChild(dir, time.Duration(rng.IntN(60))*time.Millisecond, kill%4 == 3)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		acked = max(acked, last)
		s, err := pagestore.Open(diskOptions(dir))
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		version := uint64(0)
		if len(s.Note()) > 0 {
			if version, err = strconv.ParseUint(string(s.Note()), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if version < acked || version > acked+1 {
			t.Errorf("kill %d: the store is at version %d, acknowledged was %d", kill, version, acked)
		}
		for ; committed < version; committed++ {
			w.write(committed + 1)
		}
		acked = version
		if version > 0 {
			w.note = fmt.Sprint(version)
		}
		if err := w.compare(s); err != nil {
			t.Errorf("kill %d: %v", kill, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d kills, %d commits, 0 acknowledged bytes lost", kills, acked)
	if acked == 0 {
		t.Error("no commit was acknowledged: the test shows nothing")
	}
}

// killChild runs the child, kills it some time after its first acknowledgement, or after its start
// when early, and returns the last version that it acknowledged.
func killChild(dir string, after time.Duration, early bool) (acked uint64, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	limit := 30 * time.Second
	if early {
		limit = after
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word != "ack" {
			err = errors.Join(err, errors.New(lines.Text()))
			continue
		}
		if acked, err = strconv.ParseUint(rest, 10, 64); err != nil {
			break
		}
		if first {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if waitErr := cmd.Wait(); waitErr == nil {
		err = errors.Join(err, errors.New("the child ended by itself"))
	}
	return acked, err
}
