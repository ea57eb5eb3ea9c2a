package gpuprocess

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/tiers"
)

func ringOf(t *testing.T, lines ...string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Read(keyLines(t, lines...))
	if err != nil {
		t.Fatalf("keyring.Read: %v", err)
	}
	return r
}

func keyLines(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	return path
}

// TestStoreKeys: pages of a shard are encrypted on every tier, a rotated key reads them without
// writing a page anew, and an agent that does not have the key says so and touches nothing.
func TestStoreKeys(t *testing.T) {
	const pageSize = 64 << 10
	one, two, three := strings.Repeat("11", 32), strings.Repeat("22", 32), strings.Repeat("33", 32)
	dirs := []string{t.TempDir(), t.TempDir()}
	with := func(r *keyring.Ring) *checkpoints {
		c := newCheckpoints(&storeTier{name: "a", dir: dirs[0]}, &storeTier{name: "b", dir: dirs[1]})
		c.keys = r
		return c
	}
	content := bytes.Repeat([]byte("nobody may read this. "), pageSize/22+1)[:pageSize]
	// use opens the store, and writes the page or reads it.
	use := func(c *checkpoints, write bool) error {
		t.Helper()
		s, err := c.Open("s", 0, pageSize, 4)
		if err != nil {
			return err
		}
		st := s.(*store).Store
		if write {
			for tier := range dirs {
				err = errors.Join(err, st.Put(t.Context(), tier, uint64(tier), content, tiers.Kind{Elem: 1}))
			}
			if err == nil {
				_, err = st.Commit(t.Context(), nil)
			}
		} else {
			got := make([]byte, pageSize)
			for page := range dirs {
				if gerr := st.Get(t.Context(), uint64(page), got); gerr != nil || !bytes.Equal(got, content) {
					err = errors.Join(err, gerr, errors.New("other bytes"))
				}
			}
		}
		return errors.Join(err, s.Close())
	}
	found := func(text []byte) (n int) {
		for _, dir := range dirs {
			if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				b, err := os.ReadFile(path)
				n += bytes.Count(b, text)
				return err
			}); err != nil {
				t.Fatalf("filepath.WalkDir: %v", err)
			}
		}
		return n
	}
	if err := use(with(nil), true); err != nil || found([]byte("nobody may read")) == 0 {
		t.Fatalf("without a key the text is not on the disk: this test proves nothing: %v", err)
	}
	if err := use(with(ringOf(t, one)), false); !errors.Is(err, tiers.ErrMismatch) {
		t.Fatalf("a store that is not encrypted, with a key: %v", err) // the shard drops it and starts from its log
	}
	if err := with(nil).Remove("s", 0); err != nil {
		t.Fatalf("with().Remove s: %v", err)
	}
	if err := use(with(ringOf(t, one)), true); err != nil {
		t.Fatalf("use: %v", err)
	}
	for _, text := range [][]byte{[]byte("nobody may read"), []byte(one), bytes.Repeat([]byte{0x11}, 32)} {
		if n := found(text); n != 0 {
			t.Errorf("%q is on the disk", text)
		}
	}
	if err := os.Remove(filepath.Join(dirs[0], "s.0", keyFile)); err != nil { // the other tier has it too
		t.Fatalf("os.Remove: %v", err)
	}
	for _, step := range []struct {
		name  string
		keys  []string
		works bool
	}{
		{"the same key", []string{one}, true},
		{"another key", []string{two}, false},
		{"rotated", []string{two, one}, true},
		{"without the former key", []string{two}, true},
		{"rotated twice", []string{three, two, one}, true},
		{"the first key", []string{one}, false},
	} {
		c := with(ringOf(t, step.keys...))
		locked, err := c.locked(), use(c, false)
		if step.works && (locked != nil || err != nil) || !step.works &&
			(!errors.Is(locked, errKey) || !errors.Is(err, errKey)) {
			t.Errorf("%s: %v, %v", step.name, locked, err)
		}
	}
	if err := with(nil).locked(); !errors.Is(err, errKey) || !strings.Contains(err.Error(), "--key-file") {
		t.Errorf("no key: %v", err)
	}
	// The agent says so before it starts, and the checkpoint is there afterwards.
	code, _, stderr := gpuagent(t, "--device", "host", "--nats", "nats://127.0.0.1:1", "--tier",
		"a="+dirs[0]+",capacity=1GiB", "--key-file", keyLines(t, one))
	if code != command.ExitUsage || !strings.Contains(stderr, "further line") || strings.Contains(stderr, one) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if err := use(with(ringOf(t, three)), false); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
