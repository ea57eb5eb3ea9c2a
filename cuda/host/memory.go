package host

import (
	"os"
	"strconv"
	"strings"
)

// unknownMemory is the assumed memory of a machine whose system does not report it: enough to work
// with, and little enough to fail with ErrOutOfMemory before the process is killed.
const unknownMemory = 4 << 30

// systemMemory returns the machine's memory in bytes, from /proc/meminfo: what is available without
// swapping, and all of it. Both are 4 GiB if the system does not report it.
func systemMemory() (available, total int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return unknownMemory, unknownMemory
	}
	available, total = meminfo(string(text), "MemAvailable:"), meminfo(string(text), "MemTotal:")
	if available <= 0 || total <= 0 {
		return unknownMemory, unknownMemory
	}
	return available, total
}

// meminfo returns a field of /proc/meminfo in bytes, 0 if it is missing.
func meminfo(text, field string) int64 {
	_, rest, ok := strings.Cut(text, field)
	if !ok {
		return 0
	}
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
