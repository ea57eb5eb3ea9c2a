package bucket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

func ring(t *testing.T, lines ...string) *keyring.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := keyring.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func putSealed(t *testing.T, b Bucket, name string, content []byte) {
	t.Helper()
	o, err := b.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for part := content; len(part) > 0; { // in pieces that are no multiple of a chunk
		n := min(len(part), 10_007)
		if _, err := o.Write(part[:n]); err != nil {
			t.Fatal(err)
		}
		part = part[n:]
	}
	if err := o.Commit(); err != nil {
		t.Fatal(err)
	}
}

func readSealed(t *testing.T, b Bucket, name string) ([]byte, error) {
	t.Helper()
	r, err := b.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestSeal: objects of every length come back, are not to be read on the medium, and are read with
// a former key; one without the key, one that was changed, cut or given another's name is refused.
func TestSeal(t *testing.T) {
	one, two := strings.Repeat("11", 32), strings.Repeat("22", 32)
	dir := t.TempDir()
	plain, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	first, rotated, none, other := Seal(plain, ring(t, one)), Seal(plain, ring(t, two, one)), Seal(plain, nil),
		Seal(plain, ring(t, two))
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 47, 48, 49, chunkLen - 1, chunkLen, chunkLen + 1, 2 * chunkLen, 5*chunkLen + 123} {
		content := make([]byte, n)
		for i := range content {
			content[i] = byte(random.IntN(256))
		}
		putSealed(t, first, "s/o", content)
		for name, b := range map[string]Bucket{"the key": first, "rotated": rotated} {
			if got, err := readSealed(t, b, "s/o"); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes with %s: %d bytes, %v", n, name, len(got), err)
			}
		}
		for name, b := range map[string]Bucket{"no key": none, "another key": other} {
			if _, err := readSealed(t, b, "s/o"); !errors.Is(err, ErrKey) {
				t.Errorf("%d bytes with %s: %v", n, name, err)
			}
		}
		stored, err := os.ReadFile(filepath.Join(dir, "s", "o"))
		if err != nil {
			t.Fatal(err)
		}
		if n > 40 && bytes.Contains(stored, content[:40]) {
			t.Errorf("%d bytes: the content is on the medium", n)
		}
		damage := func(what string, changed []byte, name string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "s", name), changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readSealed(t, first, "s/"+name); !errors.Is(err, ErrKey) {
				t.Errorf("%d bytes, %s: %v", n, what, err)
			}
		}
		flipped := bytes.Clone(stored)
		flipped[headLen+random.IntN(len(stored)-headLen)] ^= 4
		damage("a bit changed", flipped, "changed")
		damage("under another name", stored, "renamed")
		if n > chunkLen {
			damage("cut behind a chunk", stored[:headLen+chunkLen+tagLen], "o")
			damage("without its first chunk", append(bytes.Clone(stored[:headLen]),
				stored[headLen+chunkLen+tagLen:]...), "o")
		}
	}
	putSealed(t, none, "s/p", []byte("as it is"))
	if got, err := readSealed(t, first, "s/p"); err != nil || string(got) != "as it is" {
		t.Errorf("an object that is not encrypted: %q, %v", got, err)
	}
	putSealed(t, other, "s/q", []byte("x"))
	if _, err := readSealed(t, first, "s/q"); !errors.Is(err, ErrKey) {
		t.Errorf("the former key alone: %v", err)
	}
}
