package vfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// directFlag opens a file for I/O past the page cache.
const directFlag = syscall.O_DIRECT

// refusesDirect reports whether opening failed because the file system has no O_DIRECT (tmpfs and
// some FUSE mounts say so with EINVAL).
func refusesDirect(err error) bool { return errors.Is(err, syscall.EINVAL) }

// dataSync is fdatasync(2).
func dataSync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// allocate reserves blocks with fallocate(2), so that a later write cannot run out of space, and
// falls back to a longer file without reservation where the file system has no such call.
func allocate(f *os.File, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			info, err := f.Stat()
			if err != nil || info.Size() >= size {
				return err
			}
			return f.Truncate(size)
		}
		return os.NewSyscallError("fallocate", err)
	}
}

// freeBytes is what an unprivileged process may still write.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
