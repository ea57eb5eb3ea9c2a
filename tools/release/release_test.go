package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Run(m, ".")) }

// TestVersions: the versions of packages and charts are in the order of the commits.
func TestVersions(t *testing.T) {
	for _, c := range []struct{ described, semantic, debian string }{
		{"v0.2.0", "0.2.0", "0.2.0"},
		{"v0.2.0-rc.1", "0.2.0-rc.1", "0.2.0~rc.1"},
		{"v0.2.0-3-g1a2b3c4d", "0.2.0+3.g1a2b3c4d", "0.2.0+3.g1a2b3c4d"},
		{"v0.2.0-rc.1-3-g1a2b3c4d-dirty", "0.2.0-rc.1+3.g1a2b3c4d.dirty", "0.2.0~rc.1+3.g1a2b3c4d.dirty"},
		{"01234567-dirty", "0.0.0-g01234567.dirty", "0.0.0~g01234567.dirty"},
	} {
		if s, d := semantic(c.described), debian(c.described); s != c.semantic || d != c.debian {
			t.Errorf("%s: %s and %s, want %s and %s", c.described, s, d, c.semantic, c.debian)
		}
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg: the order of Debian is not compared")
	}
	order := []string{"0~", "v0.2.0-rc.1", "v0.2.0-rc.1-3-g1a2b3c4d", "v0.2.0", "v0.2.0-3-g1a2b3c4d", "v0.2.1"}
	for i, v := range order[1:] {
		if i > 0 && exec.Command("dpkg", "--compare-versions", debian(order[i]), "lt", debian(v)).Run() != nil {
			t.Errorf("%s is not before %s", debian(order[i]), debian(v))
		}
	}
}

// TestLicences: the licences of modules are told apart, and a text that is none is refused.
func TestLicences(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                             "Apache-2.0",
		"MIT License\n\nPermission is hereby granted, free of\ncharge, to any":     "MIT",
		"Redistributions in binary form must reproduce ... Neither the name of":    "BSD-3-Clause",
		"Redistributions in binary form must reproduce the above copyright":        "BSD-2-Clause",
		"Permission to use, copy, modify, and/or distribute this software for any": "ISC",
		"All rights reserved. This is the property of somebody.":                   "",
	} {
		if got := identify([]byte(text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"NOTICE": "a notice", "sub/LICENSE": "MIT: Permission is hereby granted, free of charge",
		"LICENSE.txt": "Apache License Version 2.0", "testdata/LICENSE": "of a test", "license.go": "package x",
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, f := range licencesIn(dir, true) {
		names = append(names, f.name)
	}
	if got := strings.Join(names, " "); got != "LICENSE.txt NOTICE sub/LICENSE" {
		t.Errorf("the files are %s", got)
	}
}

// TestDeb: dpkg reads the package, and the same input makes the same bytes.
func TestDeb(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		programs.Missing(t, "no dpkg-deb: install the package dpkg")
	}
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	var last []byte
	for range 2 {
		r := release{version: "v0.2.0", time: time.Unix(1e9, 0).UTC(), out: t.TempDir()}
		binaries := []file{{"exoswarm", 0o755, []byte("program")}}
		papers := []file{{"LICENSE", 0o644, []byte("licence")}}
		manual := []file{{"man/exoswarm.1", 0o644, []byte(".TH")}, {"completion/exoswarm.bash", 0o644, []byte("#")}}
		if err := r.deb(platform{"linux", "arm64"}, binaries, papers, manual); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(r.out, "exoswarm_0.2.0_arm64.deb")
		data, err := os.ReadFile(path)
		if err != nil || last != nil && !bytes.Equal(last, data) {
			t.Fatalf("the second package: %v, other bytes", err)
		}
		last = data
		about, err := exec.Command("dpkg-deb", "-f", path, "Version", "Architecture").CombinedOutput()
		if err != nil || string(about) != "Version: 0.2.0\nArchitecture: arm64\n" {
			t.Errorf("dpkg-deb -f: %s, %v", about, err)
		}
		list, err := exec.Command("dpkg-deb", "-c", path).CombinedOutput()
		for _, want := range []string{
			" usr/bin/exoswarm\n", " usr/lib/systemd/system/exoswarm-serve.service\n",
			" usr/share/man/man1/exoswarm.1\n", " usr/share/bash-completion/completions/exoswarm\n",
			" usr/share/doc/exoswarm/copyright\n", " etc/exoswarm/\n",
		} {
			if err != nil || !strings.Contains(string(list), want) {
				t.Errorf("dpkg-deb -c: %v, want%s in\n%s", err, want, list)
			}
		}
	}
}

// released returns the path of a file of the release in the folder EXOSWARM_RELEASE.
func released(t *testing.T, pattern string) string {
	t.Helper()
	testkit.OnlyLong(t)
	path, err := programs.Released(pattern)
	if err != nil {
		programs.Missing(t, "%v", err)
	}
	return path
}

// TestArchive: an archive on a root that has nothing else gives its first result soon, and its
// papers are complete.
func TestArchive(t *testing.T) {
	path := released(t, "exoswarm-*-linux-amd64.tar.gz")
	if os.Getuid() != 0 {
		programs.Missing(t, "another root needs the user root")
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	untar(t, path, root)
	dirs, err := filepath.Glob(filepath.Join(root, "exoswarm-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the archive has the folders %v, %v", dirs, err)
	}
	at := "/" + filepath.Base(dirs[0])
	inside := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env, cmd.Dir = []string{"HOME=/tmp"}, at
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	inside(at+"/exoswarm", "quickstart")
	took := time.Since(begun)
	t.Logf("from the archive to the first result: %.1f s", took.Seconds())
	if took > 30*time.Second { // 10 s on an idle machine; the gate has other work
		t.Errorf("it takes %v, want at most 30 s", took)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "exoswarm-out", "report.html")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"exoswarm", "cpuagent", "gpuagent"} {
		var b struct {
			Version    string
			Connectors bool
		}
		text := inside(at+"/"+name, "version", "-o", "json")
		if err := json.Unmarshal([]byte(text), &b); err != nil || !b.Connectors ||
			!strings.Contains(filepath.Base(path), "-"+b.Version+"-") {
			t.Errorf("%s of %s prints %s, error %v", name, path, text, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dirs[0], "sbom.spdx.json"))
	var bom struct {
		Packages []struct{ Name, LicenseDeclared string }
	}
	if err := errors.Join(err, json.Unmarshal(text, &bom)); err != nil || len(bom.Packages) < 50 {
		t.Errorf("the SBOM has %d parts, %v", len(bom.Packages), err)
	}
	papers, err := os.ReadFile(filepath.Join(dirs[0], "THIRD-PARTY-LICENSES"))
	for _, p := range bom.Packages[1:] {
		if err != nil || !bytes.Contains(papers, []byte("\n"+p.Name+" ")) || p.LicenseDeclared == "" {
			t.Errorf("the licence of %s is missing, error %v", p.Name, err)
		}
	}
	if sums, err := exec.Command("sh", "-c", "cd "+filepath.Dir(path)+" && sha256sum --quiet -c SHA256SUMS").
		CombinedOutput(); err != nil {
		t.Errorf("SHA256SUMS: %v\n%s", err, sums)
	}
}

func untar(t *testing.T, path, to string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(to, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			var data []byte
			data, err = io.ReadAll(r)
			err = errors.Join(err, os.WriteFile(name, data, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
