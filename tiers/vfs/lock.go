package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Own makes this process the only one that uses a folder, until the result is closed or the process
// ends in any way. It takes the lock of the file lock in the folder, and then makes and removes a
// file, because a lock does not tell that the folder can be written. The folder must exist. Own
// fails with ErrLocked at once while another process, or another caller in this one, owns the
// folder. Every error names the folder, and ErrLocked the process.
func Own(dir string) (io.Closer, error) {
	l, err := OS{}.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, ErrLocked) {
		return nil, err
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
		if err == nil {
			return l, nil
		}
		err = errors.Join(err, l.Close())
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: this process may not write there: give it the folder: %w", dir, err)
	}
	return nil, fmt.Errorf("%s: %w", dir, err)
}

// owned is a lock: of a file, which says who has it, and of the folder of the file.
type owned []*os.File

// Close implements io.Closer. A second call does nothing.
func (o owned) Close() error {
	var errs []error
	for _, f := range o {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Lock implements FS. The folder of the file is locked too: a file that somebody removes, because
// it looks like a remainder, takes its lock along. NFS locks files only. The error of a lock that
// is held names the process that holds it, as that process has written into the file.
func (OS) Lock(name string) (_ io.Closer, err error) {
	var o owned
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	o = append(o, f)
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	o = append(o, dir)
	for _, l := range o {
		err := flock(l)
		switch {
		case errors.Is(err, ErrLocked):
			return nil, fmt.Errorf("%s: %w%s", dir.Name(), err, holder(f))
		case err != nil && l == f:
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
	// The lock holds without this note, so a full disk is no reason to refuse.
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "%d %s\n", os.Getpid(), host)
	}
	return o, nil
}

// flock takes flock(2) on f without waiting.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		case errors.Is(err, syscall.EINTR):
			continue
		}
		return os.NewSyscallError("flock", err)
	}
}

// holder reads the note of the process that has a lock. It is empty where there is none: an earlier
// version writes none, and a process that is just starting has not yet.
func holder(f *os.File) string {
	note := make([]byte, 300)
	n, _ := f.ReadAt(note, 0)
	pid, host, _ := strings.Cut(strings.TrimSpace(string(note[:n])), " ")
	switch {
	case pid == "":
		return ""
	case host == "":
		return " (pid " + pid + ")"
	}
	return " (pid " + pid + " on " + host + ")"
}
