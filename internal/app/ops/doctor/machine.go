package doctor

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// securityChecks need Facts.URL only.
var securityChecks = []check{{"security-transport", "security", transport}}

// machineChecks need Facts.Local only. Their findings are at most warnings: the agents may run on
// other machines.
var machineChecks = []check{
	{"machine-files", "machine", openFiles},
	{"machine-memlock", "machine", lockedMemory},
	{"machine-disk", "machine", freeDisk},
}

// transport warns of a connection to another machine without TLS. Every address of the list must be
// encrypted or local, because the client may use any of them. A name other than localhost counts as
// another machine. An address that cannot be parsed is not judged here; it fails to connect.
func transport(f *Facts) Result {
	if f.URL == "" {
		return Result{Level: Skip, Summary: "the connection is inside this process"}
	}
	for _, text := range strings.Split(f.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Scheme != "nats" || u.Hostname() == "localhost" {
			continue
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
			continue
		}
		return Result{
			Level: Warn, Summary: "the connection to " + u.Host + " is not encrypted",
			Cure: "use tls:// and certificates: docs/operations.md, deploy/nats",
		}
	}
	return ok("connections are encrypted or local")
}

// Limits of a machine that runs agents.
const (
	// leastFiles is in open files of a process, sockets included.
	leastFiles = 4096
	// leastDisk is in bytes.
	leastDisk = 1 << 30
)

// ReadLocal reads the limits of this machine for a process with this working folder. A limit that
// cannot be read stays 0.
func ReadLocal(folder string) *Local {
	l := &Local{}
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		l.OpenFiles = r.Cur
	}
	// Package syscall has no name for it.
	const memlock = 8 // RLIMIT_MEMLOCK of Linux
	if syscall.Getrlimit(memlock, &r) == nil {
		l.LockedMemory = r.Cur
	}
	var fs syscall.Statfs_t
	if syscall.Statfs(folder, &fs) == nil {
		l.FreeDisk = fs.Bavail * uint64(fs.Bsize)
	}
	if _, err := os.Stat("/dev/shm"); err == nil && syscall.Statfs("/dev/shm", &fs) == nil {
		l.SharedMemory = fs.Blocks * uint64(fs.Bsize)
	}
	return l
}

// openFiles warns of a limit below leastFiles for this process. Agents on this machine may have
// another one.
func openFiles(f *Facts) Result {
	if f.Local == nil || f.Local.OpenFiles == 0 {
		return Result{Level: Skip, Summary: "the limit of open files could not be read"}
	}
	v := float64(f.Local.OpenFiles)
	r := ok("a process may open %d files", f.Local.OpenFiles)
	if f.Local.OpenFiles < leastFiles {
		r.Level, r.Cure = Warn, fmt.Sprintf("ulimit -n %d, or LimitNOFILE in the unit", leastFiles)
	}
	r.Value, r.Unit = &v, "files"
	return r
}

// lockedMemory reports a limit of locked memory. It matters only to a GPU agent whose CUDA reports
// errors of pinned memory, so it is information and never a warning.
func lockedMemory(f *Facts) Result {
	if f.Local == nil {
		return Result{Level: Skip, Summary: "the limit of locked memory could not be read"}
	}
	// RLIM_INFINITY is the largest uint64; a setting of systemd may become the largest int64.
	if f.Local.LockedMemory >= math.MaxInt64 {
		return ok("locked memory has no limit")
	}
	return Result{
		Level: Info, Summary: fmt.Sprintf("a process may lock %d bytes of memory", f.Local.LockedMemory),
		Cure: "a GPU agent pins memory for copies: LimitMEMLOCK=infinity in its unit where CUDA reports errors",
	}
}

// freeDisk warns of less than leastDisk free bytes on the disk of the working folder. The NATS
// server may use another disk; see store.
func freeDisk(f *Facts) Result {
	if f.Local == nil || f.Local.FreeDisk == 0 {
		return Result{Level: Skip, Summary: "the free space could not be read"}
	}
	v := float64(f.Local.FreeDisk)
	r := ok("%d MiB are free on the disk of this folder", f.Local.FreeDisk>>20)
	if f.Local.FreeDisk < leastDisk {
		r.Level, r.Cure = Warn, "make room: NATS refuses to store when its disk is full"
	}
	r.Value, r.Unit = &v, "bytes"
	return r
}
