package pagestore_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// checkEnv makes the test binary open the store of TestBadgerDamage in a directory: BadgerDB may
// end its process on damage, which must not go unseen.
const checkEnv = "EXOSWARM_PAGESTORE_CHECK"

// checkMain opens a store of childMain, compares it with the version that it says it holds, works
// with it, and prints that version. It reports whether this process is to do so.
func checkMain() bool {
	dir := os.Getenv(checkEnv)
	if dir == "" {
		return false
	}
	version, healed, err := checkStore(dir)
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	fmt.Println("ok", version, healed)
	return true
}

func checkStore(dir string) (version uint64, healed bool, err error) {
	for round := range 2 {
		s, err := pagestore.Open(diskOptions(dir))
		if err != nil {
			return 0, false, err
		}
		if round == 0 {
			healed = s.Stats().Healed
		}
		if version, err = strconv.ParseUint("0"+string(s.Note()), 10, 64); err != nil {
			return 0, false, errors.Join(err, s.Close())
		}
		w := newWorld()
		w.note = string(s.Note())
		for v := uint64(1); v <= version; v++ {
			w.write(v)
		}
		err = w.compare(s)
		if err == nil && round == 0 {
			err = writeVersion(s, version+1)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			return 0, false, err
		}
	}
	return version - 1, healed, nil
}

// copyTree copies what a crash of the machine would find, leaving holes where there is nothing.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(to, rel))
		if err != nil {
			return err
		}
		err = f.Truncate(int64(len(b)))
		zero := make([]byte, 1<<16)
		for at := 0; at < len(b) && err == nil; at += len(zero) {
			part := b[at:min(at+len(zero), len(b))]
			if !bytes.Equal(part, zero[:len(part)]) {
				_, err = f.WriteAt(part, int64(at))
			}
		}
		return errors.Join(err, f.Close())
	})
}

// damage does something to a file: flips a bit of what is in it, cuts it, fills its end with zeros,
// or removes it.
func damage(path string, rng *rand.Rand) (what string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	used := len(bytes.TrimRight(b, "\x00"))
	if used == 0 {
		return "removed", os.Remove(path)
	}
	switch rng.IntN(6) {
	case 0:
		n := rng.IntN(used)
		return fmt.Sprint("cut at ", n), os.Truncate(path, int64(n))
	case 1:
		n := rng.IntN(used)
		clear(b[n:])
		return fmt.Sprint("zero from ", n), os.WriteFile(path, b, 0o600)
	case 2:
		return "removed", os.Remove(path)
	case 3:
		at := max(0, used-1-rng.IntN(400)) // The tail.
		b[at] ^= 1 << rng.IntN(8)
		return fmt.Sprint("flip near the end at ", at), os.WriteFile(path, b, 0o600)
	}
	at := rng.IntN(used)
	b[at] ^= 1 << rng.IntN(8)
	return fmt.Sprint("flip at ", at), os.WriteFile(path, b, 0o600)
}

// freeze stops a process and waits until every thread of it stands still: the signal alone returns
// before they do, and a file seen in a directory could be renamed before it is copied.
func freeze(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("stopping process %d: %v, status %#x", p.Pid, err, int(status))
		}
		return
	}
}

// TestBadgerDamage stops a working process at random moments, copies its files, damages BadgerDB's
// among the copies, and opens them: every acknowledged commit is there, byte for byte, whatever was
// done. EXOSWARM_BADGER_DAMAGE is how often.
func TestBadgerDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("its processes are built like the test: they would take minutes with the race detector")
	}
	cases := scale(t, "EXOSWARM_BADGER_DAMAGE", testkit.Of(16, 6))
	dir := filepath.Join(t.TempDir(), "store")
	rng := rand.New(rand.NewPCG(8, 8))
	healed := 0
	for n := 0; n < cases; {
		// Ended now and then, so that BadgerDB writes sorted tables; they are only made when it is
		// closed or full.
		if n%6 == 4 {
			s, err := pagestore.Open(diskOptions(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked atomic.Uint64
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if v, err := strconv.ParseUint(strings.TrimPrefix(lines.Text(), "ack "), 10, 64); err == nil {
					acked.Store(v)
				}
			}
			_, _ = io.Copy(io.Discard, out)
		}()
		testkit.Until(t, "a commit", func() bool { return acked.Load() > 0 })
		for range 8 {
			<-time.After(time.Duration(rng.IntN(30)) * time.Millisecond) // any moment of a commit
			least := acked.Load()
			freeze(t, cmd.Process)
			left := filepath.Join(t.TempDir(), "left")
			err := copyTree(dir, left)
			if err := errors.Join(err, cmd.Process.Signal(syscall.SIGCONT)); err != nil {
				t.Fatal(err)
			}
			names, err := filepath.Glob(filepath.Join(left, "*", "*"+index.TableExt, "*"))
			if err != nil || len(names) == 0 {
				t.Fatalf("files of BadgerDB: %v, %v", names, err)
			}
			slices.Sort(names)
			what, victim := "nothing", ""
			n++
			switch n % 8 {
			case 0:
			case 1:
				what, victim = "all removed", filepath.Dir(names[0])
				err = os.RemoveAll(victim)
			default:
				victim = names[rng.IntN(len(names))]
				what, err = damage(victim, rng)
			}
			if err != nil {
				t.Fatal(err)
			}
			check := exec.Command(os.Args[0])
			check.Env = append(os.Environ(), checkEnv+"="+left)
			said, err := check.CombinedOutput()
			var version uint64
			var was bool
			if _, scanErr := fmt.Sscanf(string(said), "ok %d %t", &version, &was); err != nil || scanErr != nil ||
				version < least {
				t.Errorf("case %d, %s %s: acknowledged %d, the store says %v: %s", n, filepath.Base(victim), what,
					least, err, said)
			}
			if was {
				healed++
			}
			if err := os.RemoveAll(left); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if t.Failed() {
			break
		}
	}
	t.Logf("%d copies of a running store, %d made good, 0 acknowledged bytes lost", cases, healed)
}
