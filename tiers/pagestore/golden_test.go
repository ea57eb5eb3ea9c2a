package pagestore_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// goldenV1 is a store of format version 1, made by the first program that wrote it. It opens
// forever.
const goldenV1 = "testdata/v1.tar.gz"

func goldenOptions(dir string) pagestore.Options {
	return pagestore.Options{
		PageSize: pageSize,
		Key:      bytes.Repeat([]byte("k"), 32),
		Tiers: []pagestore.Tier{
			{Dir: filepath.Join(dir, "raw"), Capacity: 256 << 20, SegmentBytes: 64 << 10},
			{
				Dir: filepath.Join(dir, "lz4"), Capacity: 256 << 20, SegmentBytes: 64 << 10,
				Codec: pagestore.Codec{ID: pagestore.LZ4},
			},
			{
				Dir: filepath.Join(dir, "zstd"), Capacity: 256 << 20, SegmentBytes: 64 << 10,
				Codec: pagestore.Codec{ID: pagestore.Zstd, Level: 9},
			},
		},
	}
}

func goldenWorld() world {
	w := world{pages: map[uint64]uint64{}, note: "position 42"}
	for page := range uint64(9) {
		w.pages[page*1000003] = page
	}
	return w
}

// TestGoldenStore opens the golden store and works with it. EXOSWARM_GOLDEN=write makes it anew,
// which only a new format version justifies, under a new name.
func TestGoldenStore(t *testing.T) {
	ctx := context.Background()
	w := goldenWorld()
	if os.Getenv("EXOSWARM_GOLDEN") == "write" {
		dir := t.TempDir()
		s := mustOpen(t, goldenOptions(dir))
		for page, version := range w.pages {
			if err := put(s, int(version%3), page, version); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Commit(ctx, []byte(w.note)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		pack(t, dir, goldenV1)
	}
	dir := t.TempDir()
	unpack(t, goldenV1, dir)
	s := mustOpen(t, goldenOptions(dir))
	if err := w.compare(s); err != nil {
		t.Fatal(err)
	}
	if err := put(s, 0, 5, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, []byte(w.note)); err != nil {
		t.Fatal(err)
	}
	w.pages[5] = 5
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.compare(mustOpen(t, goldenOptions(dir))); err != nil {
		t.Error(err)
	}
}

func pack(t *testing.T, dir, name string) {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	a := tar.NewWriter(z)
	if err := a.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), z.Close(), os.MkdirAll(filepath.Dir(name), 0o755),
		os.WriteFile(name, buf.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, name, dir string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for a := tar.NewReader(z); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(a); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, 0o600))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
