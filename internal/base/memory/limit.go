// Package memory is the budget of memory of a process: how much it may use, and who has which part
// of it.
package memory

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Limit is the most memory that a process may use.
type Limit struct {
	Bytes int64
	// Container reports whether the limit is a limit of a container: the process need not share it.
	// Else Bytes is what the machine has available now.
	Container bool
}

// unlimited is the smallest value that cgroup v1 writes without a limit: 2^63-1 rounded down to a
// page of 64 KiB.
const unlimited = math.MaxInt64 - 64<<10

// Detect returns the limit of the process that reads root, the root of the file system. It is the
// smallest of memory.max in the process's control group and its parents (version 2),
// memory.limit_in_bytes (version 1), and what the machine has available.
func Detect(root fs.FS) (Limit, error) {
	available, err := meminfo(root)
	if err != nil {
		return Limit{}, err
	}
	l := Limit{Bytes: available}
	if n, ok := cgroup(root); ok && n < l.Bytes {
		l = Limit{Bytes: n, Container: true}
	}
	return l, nil
}

// meminfo returns MemAvailable of /proc/meminfo in bytes.
func meminfo(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("available memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || kib < 1 || kib > math.MaxInt64>>10 {
			return 0, fmt.Errorf("available memory: /proc/meminfo says %q", strings.TrimSpace(line))
		}
		return kib << 10, nil
	}
	return 0, errors.New("available memory: /proc/meminfo has no MemAvailable")
}

// cgroup returns the least limit of the process's control groups; ok is false where there is none.
func cgroup(root fs.FS) (least int64, ok bool) {
	file, err := root.Open("proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	least = math.MaxInt64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// ID:CONTROLLERS:PATH; version 2 has the ID 0 and no controllers.
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		base, name := "sys/fs/cgroup", "memory.max"
		switch {
		case controllers == "":
		case hasController(controllers):
			base, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		least = min(least, leastAbove(root, base, group, name))
	}
	return least, least < unlimited
}

func hasController(list string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == "memory" {
			return true
		}
	}
	return false
}

// leastAbove returns the least limit of a group and its parents. In a container the path of the
// group may be a path of the host, whose folders are not there: the walk then ends at the root of
// the file system of groups, which has the container's own limit.
func leastAbove(root fs.FS, base, group, name string) int64 {
	least := int64(math.MaxInt64)
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		if text, err := fs.ReadFile(root, path.Join(base, at, name)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
		if at == "/" {
			return least
		}
	}
}
