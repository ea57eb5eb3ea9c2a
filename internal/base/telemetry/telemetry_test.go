package telemetry

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write files.zip")

// folder has the files that files.zip embeds.
const folder = "../../../examples/telemetry"

// TestFiles: files.zip has the files of the example. After a change of one of them, write it again:
//
//	go test ./internal/base/telemetry -update
func TestFiles(t *testing.T) {
	names, err := fs.Glob(os.DirFS(folder), "data/*.csv")
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, "incidents.json", "swarm.yaml")
	if *update {
		write(t, names)
		return
	}
	var packed []string
	if err := fs.WalkDir(Files, ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			packed = append(packed, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(packed)
	if !slices.Equal(packed, names) {
		t.Errorf("files.zip has %v, want %v: run this test with -update", packed, names)
	}
	for _, name := range packed {
		got, err := fs.ReadFile(Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs in files.zip (%v): run this test with -update", name, err)
		}
	}
}

func write(t *testing.T, names []string) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(to, flate.BestCompression)
	})
	for _, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o644)
		to, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("files.zip", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
