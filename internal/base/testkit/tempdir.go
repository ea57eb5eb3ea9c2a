package testkit

import (
	"os"
	"syscall"
)

const (
	// shared is the file system in memory that Linux machines have.
	shared = "/dev/shm"
	// room is how many bytes must be free there. The tests of the largest package take 300 MB at a
	// time, and two packages run at a time.
	room = 2 << 30
)

// TempInMemory makes the temporary folders of this process and of its children be in memory, if the
// machine has room for that and neither TMPDIR nor GOTMPDIR is set. A TestMain calls it first. A
// server syncs each file that it makes, which takes most of the time of a short test on a disk.
// Files in memory outlive a killed process. Long tests use the disk, and so do tests of disks:
// their packages do not call TempInMemory.
func TempInMemory() {
	var fs syscall.Statfs_t
	if Long() || os.Getenv("TMPDIR") != "" || os.Getenv("GOTMPDIR") != "" ||
		syscall.Statfs(shared, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return
	}
	if err := os.Setenv("TMPDIR", shared); err != nil {
		panic(err) // both strings are constants
	}
}
