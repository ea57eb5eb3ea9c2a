package host

import (
	"os"
	"strconv"
	"strings"
)

// unknownMemory stands for the machine's memory where the system does not tell it: enough to work
// with, little enough to fail with ErrOutOfMemory before the process is killed.
const unknownMemory = 4 << 30

// Memory is the machine's memory in bytes, what is available without swapping and all of it; 4 GiB
// where the system does not tell.
func Memory() (available, total int64) { return systemMemory() }

// systemMemory is the machine's memory in bytes, available without swapping and in all, as
// /proc/meminfo has it.
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
