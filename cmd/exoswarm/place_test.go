package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestPlaces: a run writes through links, into FIFOs and devices and to standard output, and
// replaces none of them.
func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := write(t, filepath.Join(dir, "in.csv"), series(1, 40)+"x,1\n")
	run := func(args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(t.Context(), t, append([]string{"run", "-f", spec, "--input", in}, args...)...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, stderr)
		}
		return stdout, stderr
	}
	plain := filepath.Join(dir, "plain.ndjson")
	run("--output", plain)
	want, err := os.ReadFile(plain)
	if err != nil || bytes.Count(want, []byte("\n")) != 40 {
		t.Fatalf("the output has %d bytes, error %v; want 40 lines", len(want), err)
	}
	mode := func(path string) fs.FileMode {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatalf("os.Lstat: %v", err)
		}
		return info.Mode().Type()
	}

	t.Run("links", func(t *testing.T) {
		far := filepath.Join(dir, "far")
		if err := os.Mkdir(far, 0o755); err != nil {
			t.Fatalf("os.Mkdir: %v", err)
		}
		write(t, filepath.Join(far, "old.ndjson"), "old\n")
		for _, to := range []string{"old.ndjson", "missing.ndjson"} {
			link, second := filepath.Join(dir, "to-"+to), filepath.Join(dir, "second-"+to)
			if err := os.Symlink(filepath.Join("far", to), link); err != nil {
				t.Fatalf("os.Symlink: %v", err)
			}
			if err := os.Symlink(link, second); err != nil {
				t.Fatalf("os.Symlink: %v", err)
			}
			run("--output", second)
			got, err := os.ReadFile(filepath.Join(far, to))
			if mode(link) != fs.ModeSymlink || mode(second) != fs.ModeSymlink || err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v, links are %v and %v", to, err, mode(second), mode(link))
			}
		}
	})
	t.Run("a device", func(t *testing.T) {
		link := filepath.Join(dir, "null.ndjson")
		if err := os.Symlink(os.DevNull, link); err != nil {
			t.Fatalf("os.Symlink: %v", err)
		}
		run("--output", link)
		if mode(link) != fs.ModeSymlink || mode(os.DevNull)&fs.ModeCharDevice == 0 {
			t.Errorf("%s is %v and %s %v", link, mode(link), os.DevNull, mode(os.DevNull))
		}
	})
	t.Run("a FIFO", func(t *testing.T) {
		fifo := filepath.Join(dir, "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatalf("syscall.Mkfifo: %v", err)
		}
		read := make(chan []byte, 1)
		go func() {
			data, _ := os.ReadFile(fifo)
			read <- data
		}()
		run("--output", fifo)
		if got := <-read; !bytes.Equal(got, want) || mode(fifo) != fs.ModeNamedPipe {
			t.Errorf("%d bytes came through, the FIFO is %v", len(got), mode(fifo))
		}
	})
	t.Run("standard output", func(t *testing.T) {
		for _, name := range []string{"-", "/dev/stdout"} {
			stdout, stderr := run("--output", name)
			if stdout != string(want) || !strings.Contains(stderr, "40 decisions") {
				t.Errorf("%s: %d bytes, and %s", name, len(stdout), stderr)
			}
		}
		if _, err := os.Stat("-"); err == nil {
			t.Error("there is a file called -")
		}
	})
	t.Run("rejects", func(t *testing.T) {
		for _, name := range []string{"a.csv", "b.parquet"} {
			run("--output", filepath.Join(dir, name))
		}
		own := filepath.Join(dir, "own.txt")
		run("--output", filepath.Join(dir, "c.ndjson"), "--rejects", own)
		for _, path := range []string{
			filepath.Join(dir, "a.rejects.ndjson"), filepath.Join(dir, "b.rejects.ndjson"),
			own,
		} {
			if data, err := os.ReadFile(path); err != nil || !bytes.Contains(data, []byte(`"row":41`)) {
				t.Errorf("%s: %s, %v", path, data, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "c.rejects.ndjson")); err == nil {
			t.Error("--rejects has left a second list")
		}
	})
	t.Run("usage", func(t *testing.T) {
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"--output", filepath.Join(dir, "x.xlsx")}, ".parquet"},
			{[]string{"--output", filepath.Join(dir, "x.xlsx.gz")}, ".parquet"},
			{[]string{"--output", dir}, "folder"},
			{[]string{"--output", plain, "--rejects", plain}, "both"},
			{[]string{"--output", "-", "--rejects", "/dev/stdout"}, "both"},
			{[]string{"--output", filepath.Join(dir, "none", "x.ndjson")}, "does not exist"},
		} {
			code, _, stderr := exec(t.Context(), t, append([]string{"run", "-f", spec, "--input", in}, c.args...)...)
			if code != command.ExitUsage || !strings.Contains(stderr, c.want) {
				t.Errorf("%v: exit %d: %s", c.args, code, stderr)
			}
		}
	})
	t.Run("no valid row", func(t *testing.T) {
		bad := write(t, filepath.Join(dir, "bad.csv"), "timestamp,value\n31.01.2026,\"1,5\"\n")
		out := filepath.Join(dir, "bad-out.ndjson")
		code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", bad, "--output", out)
		list := filepath.Join(dir, "bad-out.rejects.ndjson")
		if _, err := os.Stat(list); code != 2 || err != nil || !strings.Contains(stderr, list) ||
			!strings.Contains(stderr, "bad.csv: row 1 (line 2)") {
			t.Errorf("exit %d, %v: %s", code, err, stderr)
		}
	})
}

// TestOnceInputs: standard input and a FIFO are read, their format is found, and further arguments
// are inputs.
func TestOnceInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	text := series(1, 40)
	in := write(t, filepath.Join(dir, "in.csv"), text)
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatalf("syscall.Mkfifo: %v", err)
	}
	run := func(stdin string, args ...string) string {
		t.Helper()
		var out, log bytes.Buffer
		cmd := root()
		cmd.SetArgs(append([]string{"run", "-f", spec, "--output", "-"}, args...))
		cmd.SetIn(strings.NewReader(stdin))
		cmd.SetOut(&out)
		cmd.SetErr(&log)
		if code := command.Run(t.Context(), cmd, &log); code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, log.String())
		}
		return out.String()
	}
	want := run("", "--input", in)
	if got := run(text, "--input", "-"); strings.ReplaceAll(got, "stdin.csv", "in.csv") != want {
		t.Error("standard input gives other decisions than the same file")
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(fifo, []byte(text), 0o600) }()
	if got := run("", "--input", fifo); strings.ReplaceAll(got, "fifo.csv", "in.csv") != want || <-wrote != nil {
		t.Error("a FIFO gives other decisions than the same file")
	}
	objects := `{"timestamp":1,"value":1}` + "\n" + `{"timestamp":2,"value":2}` + "\n"
	if got := run(objects, "--input", "/dev/stdin"); strings.Count(got, `"series":"stdin.ndjson"`) != 2 {
		t.Errorf("objects from standard input: %s", got)
	}
	second := write(t, filepath.Join(dir, "in2.csv"), text)
	if got := run("", "--input", in, second); strings.Count(got, "\n") != 80 {
		t.Errorf("%d decisions of two files", strings.Count(got, "\n"))
	}
}

// TestNATSEmpty: an empty --nats is a run in this process, whatever the environment says.
func TestNATSEmpty(t *testing.T) {
	dir := t.TempDir()
	spec, in := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec),
		write(t, filepath.Join(dir, "in.csv"), series(1, 40))
	t.Setenv("EXOSWARM_NATS", "nats://127.0.0.1:1")
	args := []string{"run", "-f", spec, "--input", in, "--output", "-"}
	if code, _, stderr := exec(t.Context(), t, args...); code == 0 {
		t.Fatalf("the environment names no server: %s", stderr)
	}
	if code, _, stderr := exec(t.Context(), t, append(args, "--nats", "")...); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
