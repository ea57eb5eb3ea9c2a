//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type program struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

const roleEnv = "EXOSWARM_RECORD_ROLE"

// start starts this command in a role. The program ends when its standard input does, so it does
// not outlive the recording.
func start(self, role string) (*program, error) {
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &program{cmd, stdin}, cmd.Start()
}

// do sends a command to the program: STOP and CONT are signals, other text a line of its standard
// input (see work).
func (p *program) do(command string) error {
	switch command {
	case "STOP":
		return p.cmd.Process.Signal(syscall.SIGSTOP)
	case "CONT":
		return p.cmd.Process.Signal(syscall.SIGCONT)
	}
	_, err := fmt.Fprintln(p.stdin, command)
	return err
}

func (p *program) stop() error {
	err := errors.Join(p.do("CONT"), p.stdin.Close())
	return errors.Join(err, p.cmd.Wait())
}

type usage struct {
	cpu     time.Duration
	wakeups uint64 // voluntary context switches of all threads
	written uint64 // bytes, by calls of write
	memory  uint64 // resident bytes
}

func (p *program) usage() (usage, error) {
	var u usage
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*"))
	if err != nil {
		return u, err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if err != nil {
			return u, err
		}
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(stat))[0], 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(nanoseconds)
		wakeups, err := field(filepath.Join(task, "status"), "voluntary_ctxt_switches:")
		if err != nil {
			return u, err
		}
		u.wakeups += wakeups
	}
	if u.written, err = field(filepath.Join(dir, "io"), "wchar:"); err != nil {
		return u, err
	}
	kib, err := field(filepath.Join(dir, "status"), "VmRSS:")
	u.memory = kib << 10
	return u, err
}

// field returns the number after name at the start of a line of a file of /proc.
func field(path, name string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}
