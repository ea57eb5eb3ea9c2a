package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
	"time"
)

// file is a file of an archive or package.
type file struct {
	name string // with slashes, relative
	mode int64
	data []byte
}

// folders are what an archive has beside programs and papers. The chart is a file of its own.
var folders = []string{
	"deploy/systemd", "deploy/nats", "deploy/compose", "deploy/prometheus", "deploy/grafana", "examples/telemetry",
}

// tree returns the files of a folder of the repository.
func tree(dir string) (all []file, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		all = append(all, file{name: filepath.ToSlash(name), mode: 0o644, data: data})
		return err
	})
	return all, err
}

// programsOf returns programs as a file system.
func programsOf(all []file) fs.FS {
	m := fstest.MapFS{}
	for _, f := range all {
		m[f.name] = &fstest.MapFile{Data: f.data, Mode: fs.FileMode(f.mode)}
	}
	return m
}

// archive writes NAME.tar.gz with all files in the folder NAME.
func (r release) archive(name string, files []file) error {
	files = slices.Clone(files)
	for _, dir := range folders {
		more, err := tree(dir)
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	data, err := packed(files, name, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+".tar.gz"), data, 0o644)
}

// packed returns a compressed tar of files below a folder; empty for the root. All have a time, and
// belong to root.
func packed(files []file, below string, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	made := map[string]bool{".": true, "": true, "./": true}
	var dirs func(dir string) error
	dirs = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		return errors.Join(dirs(path.Dir(dir)), t.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatGNU,
		}))
	}
	for _, f := range files {
		name := path.Join(below, f.name)
		if strings.HasSuffix(f.name, "/") {
			if err := dirs(name); err != nil {
				return nil, err
			}
			continue
		}
		if err := dirs(path.Dir(name)); err != nil {
			return nil, err
		}
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at,
			Format: tar.FormatGNU,
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// chart writes the Helm chart, whose version and appVersion are of this release.
func (r release) chart() error {
	files, err := tree("deploy/helm/exoswarm")
	if err != nil {
		return err
	}
	for i, f := range files {
		files[i].name = strings.TrimPrefix(f.name, "deploy/helm/")
		if files[i].name != "exoswarm/Chart.yaml" {
			continue
		}
		var lines []string
		for line := range strings.Lines(string(f.data)) {
			switch {
			case strings.HasPrefix(line, "version:"):
				line = "version: " + semantic(r.version) + "\n"
			case strings.HasPrefix(line, "appVersion:"):
				line = fmt.Sprintf("appVersion: %q\n", r.version)
			}
			lines = append(lines, line)
		}
		files[i].data = []byte(strings.Join(lines, ""))
	}
	data, err := packed(files, "", r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "exoswarm-"+r.version+".tgz"), data, 0o644)
}
