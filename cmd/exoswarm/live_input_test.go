package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestLiveInput: rows of standard input and of a FIFO are decided before their writer writes the
// next ones, in this process and on a cluster, and the end of the stream is the end of the run. The
// decisions are the same as for a file with the same rows.
func TestLiveInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		cluster, fifo bool
	}{{"one process", false, false}, {"cluster", true, false}, {"FIFOs", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
			rows := strings.SplitAfter(strings.TrimSuffix(series(1, 60), "\n"), "\n")
			file := write(t, filepath.Join(dir, "stdin.csv"), strings.Join(rows, ""))
			code, want, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", file, "--output", "-",
				"--progress", "none")
			if code != 0 {
				t.Fatalf("a run over the file: exit %d, want 0: %s", code, stderr)
			}
			args := []string{"run", "-f", spec, "--progress", "none"}
			if c.cluster {
				args = append(args, "--nats", served(t, dir))
			}
			var in io.WriteCloser
			var out io.Reader
			var log bytes.Buffer
			cmd := root()
			cmd.SetErr(&log)
			var stdout *os.File
			if c.fifo {
				from, to := filepath.Join(dir, "in", "stdin.csv"), filepath.Join(dir, "out")
				if err := errors.Join(os.Mkdir(filepath.Dir(from), 0o700), syscall.Mkfifo(from, 0o600),
					syscall.Mkfifo(to, 0o600)); err != nil {
					t.Fatalf("errors.Join: %v", err)
				}
				args = append(args, "--input", from, "--output", to)
				in, out = opener(func() (*os.File, error) { return os.OpenFile(from, os.O_WRONLY, 0) }),
					opener(func() (*os.File, error) { return os.Open(to) })
			} else {
				args = append(args, "--input", "-", "--output", "-")
				r, w := io.Pipe()
				cmd.SetIn(r)
				in = w
				lines, end, err := os.Pipe()
				if err != nil {
					t.Fatalf("os.Pipe: %v", err)
				}
				defer lines.Close()
				stdout, out = end, opener(func() (*os.File, error) { return lines, nil })
				cmd.SetOut(end)
			}
			cmd.SetArgs(args)
			done := make(chan int, 1)
			go func() {
				code := command.Run(t.Context(), cmd, &log)
				if stdout != nil {
					_ = stdout.Close()
				}
				done <- code
			}()
			lines := bufio.NewReader(out)
			var got strings.Builder
			next := 0
			for _, n := range []int{2, 1, 20, 1, 37} { // the first with the header
				if _, err := io.WriteString(in, strings.Join(rows[next:next+n], "")); err != nil {
					t.Fatalf("io.WriteString: %v", err)
				}
				if next += n; next == len(rows) {
					if err := in.Close(); err != nil { // the last row has no end
						t.Fatalf("in.Close: %v", err)
					}
				}
				for strings.Count(got.String(), "\n") < next-1 {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("row %d: %v: %s", next, err, log.String())
					}
					got.WriteString(line)
				}
			}
			if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
				t.Errorf("behind the last decision: %q, %v", rest, err)
			}
			if code := <-done; code != 0 {
				t.Fatalf("exit %d: %s", code, log.String())
			}
			if got.String() != want {
				t.Errorf("decisions of a stream and of a file with the same rows differ:\n%.300s\n%.300s", got.String(),
					want)
			}
		})
	}
}

// lazyFile opens a FIFO at the first use, when its other side may be there.
type lazyFile struct {
	open func() (*os.File, error)
	file *os.File
}

func opener(open func() (*os.File, error)) *lazyFile { return &lazyFile{open: open} }

func (l *lazyFile) use() (err error) {
	if l.file == nil {
		l.file, err = l.open()
	}
	return err
}

func (l *lazyFile) Read(p []byte) (int, error) {
	if err := l.use(); err != nil {
		return 0, err
	}
	_ = l.file.SetReadDeadline(time.Now().Add(time.Minute)) // rows that never come fail the test
	return l.file.Read(p)
}

func (l *lazyFile) Write(p []byte) (int, error) {
	if err := l.use(); err != nil {
		return 0, err
	}
	return l.file.Write(p)
}

func (l *lazyFile) Close() error { return l.file.Close() }

// TestLiveInputInterrupted: Ctrl-C while nothing comes ends the run with what has come.
func TestLiveInputInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec, out := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec), filepath.Join(dir, "out.ndjson")
	r, w := io.Pipe()
	defer w.Close()
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	cmd := root()
	var log bytes.Buffer
	cmd.SetIn(r)
	cmd.SetOut(&log)
	cmd.SetErr(&log)
	cmd.SetArgs([]string{"run", "-f", spec, "--input", "-", "--output", out, "--progress", "none"})
	done := make(chan int, 1)
	go func() { done <- command.Run(ctx, cmd, &log) }()
	if _, err := io.WriteString(w, series(1, 30)); err != nil {
		t.Fatalf("io.WriteString: %v", err)
	}
	// the rows are taken at once; this is when nothing comes
	time.AfterFunc(3*time.Second, func() { interrupt(command.ErrInterrupted) })
	select {
	case code := <-done:
		data, err := os.ReadFile(out)
		if code != command.ExitInterrupted || err != nil || bytes.Count(data, []byte("\n")) != 30 {
			t.Errorf("exit %d, %d decisions, %v: %s", code, bytes.Count(data, []byte("\n")), err, log.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
}
