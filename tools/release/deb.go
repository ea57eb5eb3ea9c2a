package main

import (
	"bytes"
	"crypto/md5" // the format of Debian has it
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The folder of the programs in a package, and in the units of deploy/systemd.
const (
	packageBin = "usr/bin/"
	unitBin    = "/usr/local/bin/"
)

// Scripts of a package. Units are not enabled by an installation: docs/deploy.md tells what each
// needs first. An upgrade leaves processes running, so that the operator restarts one after the
// other.
const (
	afterInstall = `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
`
	beforeRemoval = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl stop 'exoswarm-*.service' || true
fi
`
)

// deb writes the package for Debian and its derivatives: an ar archive of two tars (deb(5)).
func (r release) deb(p platform, binaries, papers, manual []file) error {
	var files []file
	for _, f := range binaries {
		files = append(files, file{packageBin + f.name, 0o755, f.data})
	}
	units, err := tree("deploy/systemd")
	if err != nil {
		return err
	}
	for _, f := range units {
		to := "usr/share/doc/exoswarm/examples/"
		if strings.HasSuffix(f.name, ".service") {
			to = "usr/lib/systemd/system/"
			f.data = bytes.ReplaceAll(f.data, []byte("ExecStart="+unitBin), []byte("ExecStart=/"+packageBin))
		}
		files = append(files, file{to + filepath.Base(f.name), 0o644, f.data})
	}
	for _, f := range manual {
		to, name := "usr/share/man/man1/", filepath.Base(f.name)
		switch {
		case strings.HasSuffix(name, ".bash"):
			to, name = "usr/share/bash-completion/completions/", strings.TrimSuffix(name, ".bash")
		case strings.HasSuffix(name, ".zsh"):
			to, name = "usr/share/zsh/vendor-completions/", "_"+strings.TrimSuffix(name, ".zsh")
		case strings.HasSuffix(name, ".fish"):
			to = "usr/share/fish/vendor_completions.d/"
		}
		files = append(files, file{to + name, 0o644, f.data})
	}
	for _, f := range papers {
		name := f.name
		if name == "LICENSE" {
			name = "copyright"
		}
		files = append(files, file{"usr/share/doc/exoswarm/" + name, 0o644, f.data})
	}
	files = append(files, file{"etc/exoswarm/", 0o755, nil})
	data, err := packed(files, "", r.time)
	if err != nil {
		return err
	}
	var size int
	var sums strings.Builder
	for _, f := range files {
		size += len(f.data)
		if !strings.HasSuffix(f.name, "/") {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.name)
		}
	}
	about := fmt.Sprintf(`Package: exoswarm
Version: %s
Architecture: %s
Maintainer: The Exoswarm authors <https://github.com/exoswarm/exoswarm>
Section: net
Priority: optional
Installed-Size: %d
Homepage: https://github.com/exoswarm/exoswarm
Description: anomaly detection and simulation with very many neural agents
 The commands exoswarm, cpuagent and gpuagent (host device), units for systemd,
 manual pages and completion. The programs are static.
`, debian(r.version), p.arch, (size+1023)/1024)
	control, err := packed([]file{
		{"control", 0o644, []byte(about)},
		{"md5sums", 0o644, []byte(sums.String())},
		{"postinst", 0o755, []byte(afterInstall)},
		{"prerm", 0o755, []byte(beforeRemoval)},
	}, "", r.time)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("exoswarm_%s_%s.deb", debian(r.version), p.arch)
	return os.WriteFile(filepath.Join(r.out, name), ar(r.time, []file{
		{"debian-binary", 0o644, []byte("2.0\n")}, {"control.tar.gz", 0o644, control}, {"data.tar.gz", 0o644, data},
	}), 0o644)
}

// ar returns an archive of the format ar.
func ar(at time.Time, files []file) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range files {
		mode := fmt.Sprintf("100%o", f.mode)
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", f.name, at.Unix(), 0, 0, mode, len(f.data))
		b.Write(f.data)
		if len(f.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
