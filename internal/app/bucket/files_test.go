package bucket_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func sumOf(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// keys returns a ring of one key.
func keys(t *testing.T) *keyring.Ring {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	testkit.NoError(t, "os.WriteFile", os.WriteFile(file, []byte(strings.Repeat("3a", 32)), 0o600))
	ring, err := keyring.Read(file)
	testkit.NoError(t, "keyring.Read", err)
	return ring
}

// TestFiles: in every kind of bucket, encrypted or not, reads at any place have the bytes of the
// object. An object of an object store is copied once.
func TestFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for kind, b := range buckets(t) {
		for name, ring := range map[string]*keyring.Ring{"plain": nil, "encrypted": keys(t)} {
			for _, size := range []int{0, 1, 65535, 65536, 65537, 300_001} {
				data, dir := make([]byte, size), t.TempDir()
				for i := range data {
					data[i] = byte(r.Uint32())
				}
				testkit.NoError(t, "Commit", put(t, bucket.Seal(b, ring), "m.model/w", string(data)).Commit())
				open := func() *bucket.Files {
					f := bucket.NewFiles(b, ring, dir)
					testkit.Close(t, f)
					return f
				}
				f := open()
				if _, err := f.OpenAt(t.Context(), "m.model/w", int64(size), sumOf([]byte("x"))); !errors.Is(err,
					bucket.ErrChanged) {
					t.Errorf("%s, %s: another checksum: %v, want an ErrChanged", kind, name, err)
				}
				if _, err := f.OpenAt(t.Context(), "m.model/w", int64(size)+1, sumOf(data)); !errors.Is(err,
					bucket.ErrChanged) {
					t.Errorf("%s, %s: another length: %v, want an ErrChanged", kind, name, err)
				}
				if _, err := f.OpenAt(t.Context(), "m.model/none", 1, sumOf(data)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s, %s: an object that is not there: %v", kind, name, err)
				}
				at, err := f.OpenAt(t.Context(), "m.model/w", int64(size), sumOf(data))
				testkit.NoError(t, "OpenAt", err)
				for range 50 {
					off := r.IntN(size + 1)
					p := make([]byte, r.IntN(size-off+2))
					n, err := at.ReadAt(p, int64(off))
					if want := min(len(p), size-off); n != want || !bytes.Equal(p[:n], data[off:off+n]) ||
						(n == len(p)) != (err == nil) || err != nil && !errors.Is(err, io.EOF) {
						t.Fatalf("%s, %s: %d bytes at %d of %d: %d, %v", kind, name, len(p), off, size, n, err)
					}
				}
				testkit.NoError(t, "Close", at.Close())
				if kind == "folder" || kind == "file URL" {
					continue
				}
				testkit.NoError(t, "Drop", b.Drop(t.Context(), "m.model/w"))
				at, err = open().OpenAt(t.Context(), "m.model/w", int64(size), sumOf(data))
				testkit.NoError(t, "OpenAt of the copy", err)
				testkit.NoError(t, "Close", at.Close())
			}
		}
	}
}

// TestFilesChange: a file of a folder is compared again after it has changed. A copy that was cut is
// made again. What a killed process has left is swept away.
func TestFilesChange(t *testing.T) {
	dir, copies := t.TempDir(), t.TempDir()
	folder, err := bucket.OpenFolder(dir)
	testkit.NoError(t, "OpenFolder", err)
	testkit.Close(t, folder)
	testkit.NoError(t, "Commit", put(t, folder, "m.model/w", "weights").Commit())
	f := bucket.NewFiles(folder, nil, copies)
	open := func(f *bucket.Files) error {
		at, err := f.OpenAt(t.Context(), "m.model/w", 7, sumOf([]byte("weights")))
		if err == nil {
			err = at.Close()
		}
		return err
	}
	testkit.NoError(t, "OpenAt", errors.Join(open(f), open(f)))
	testkit.NoError(t, "os.WriteFile", os.WriteFile(filepath.Join(dir, "m.model", "w"), []byte("heights"), 0o600))
	if err := open(f); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("OpenAt of a changed file: %v, want an ErrChanged", err)
	}
	g := googles(t)
	testkit.Close(t, g)
	if err := open(bucket.NewFiles(g, nil, "")); err == nil {
		t.Error("an object is opened without a folder for its copy")
	}
	testkit.NoError(t, "Commit", put(t, g, "m.model/w", "weights").Commit())
	left := filepath.Join(copies, "copies", "x.LEFT.partial")
	testkit.NoError(t, "os.MkdirAll", os.MkdirAll(filepath.Dir(left), 0o755))
	testkit.NoError(t, "os.WriteFile", os.WriteFile(left, nil, 0o600))
	f = bucket.NewFiles(g, nil, copies)
	testkit.Close(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.EOF)
	if _, err := f.OpenAt(ctx, "m.model/w", 7, sumOf([]byte("weights"))); !errors.Is(err, io.EOF) {
		t.Errorf("OpenAt after the end of its context: %v", err)
	}
	testkit.NoError(t, "OpenAt", open(f))
	all, err := filepath.Glob(filepath.Join(copies, "copies", "*"))
	if err != nil || len(all) != 1 || all[0] == left {
		t.Fatalf("the copies %q, %v, want one", all, err)
	}
	testkit.NoError(t, "os.Truncate", os.Truncate(all[0], 3))
	testkit.NoError(t, "OpenAt after the copy was cut", open(f))
}
