package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/dialect"
)

// TestLiveInput: rows of standard input and of a FIFO are decided before their writer writes the
// next ones, in this process and on a cluster, and the end of the stream is the end of the run. The
// decisions are those of a file with the same rows.
func TestLiveInput(t *testing.T) {
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
				t.Fatal(stderr)
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
					t.Fatal(err)
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
					t.Fatal(err)
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
					t.Fatal(err)
				}
				if next += n; next == len(rows) {
					if err := in.Close(); err != nil { // the last row has no end
						t.Fatal(err)
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
		t.Fatal(err)
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

// TestRecords: documents are cut at the ends of records alone, however the stream comes, and
// together they are the stream with its header before each.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{
			"1", "", "a,b", "a\nb", `a"b`, "\"", "\r\n",
			"long" + strings.Repeat("x", 3000),
		})
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		want := [][]string{{"timestamp", "value", "note"}}
		for i := range rapid.IntRange(0, 60).Draw(t, "rows") {
			want = append(want, []string{fmt.Sprint(i), field.Draw(t, "value"), field.Draw(t, "note")})
		}
		if err := w.WriteAll(want); err != nil {
			t.Fatal(err)
		}
		stream := text.Bytes()
		if rapid.Bool().Draw(t, "no end") {
			stream = bytes.TrimSuffix(stream, []byte("\n"))
		}
		l, err := openRecords(rapid.SampledFrom([]int{1, 7, 100, 5000, 1 << 20}).Draw(t, "piece"), stream)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]string
		for n := uint64(1); ; n++ {
			answer := l.answer(n)
			document, ok := bytes.CutPrefix(answer, []byte(source.InputDocument))
			if !ok {
				if string(answer) != source.InputEnd {
					t.Fatalf("document %d: %q", n, answer)
				}
				break
			}
			if again := l.answer(n); !bytes.Equal(again, answer) {
				t.Fatalf("document %d is another one when it is requested again", n)
			}
			if len(document) > source.MaxInputDocument {
				t.Fatalf("document %d has %d bytes", n, len(document))
			}
			all, err := csv.NewReader(bytes.NewReader(document)).ReadAll()
			if err != nil || len(all) == 0 {
				t.Fatalf("document %d: %v", n, err)
			}
			if n > 1 {
				if fmt.Sprint(all[0]) != fmt.Sprint(want[0]) {
					t.Fatalf("document %d begins with %q", n, all[0])
				}
				all = all[1:]
			}
			got = append(got, all...)
		}
		for _, r := range want { // the package reads a line end in quotes as \n
			for i := range r {
				r[i] = strings.ReplaceAll(r[i], "\r\n", "\n")
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("the documents hold %d records, the stream %d", len(got), len(want))
		}
	})
}

// openRecords is a live input of a CSV stream that comes in pieces of so many bytes.
func openRecords(piece int, stream []byte) (*liveInput, error) {
	r, w := io.Pipe()
	go func() {
		for len(stream) > 0 {
			n := min(piece, len(stream))
			if _, err := w.Write(stream[:n]); err != nil {
				return
			}
			stream = stream[n:]
		}
		_ = w.Close()
	}()
	l, _, err := openLiveInput(context.Background(), []string{"-"}, r, dialect.CSV{})
	return l, err
}

// TestLongRecord: a record that is longer than a document is cut, and the stream goes on behind it.
func TestLongRecord(t *testing.T) {
	long := strings.Repeat("x", 3*source.MaxInputDocument)
	l, err := openRecords(64<<10, []byte("timestamp,value\n1,"+long+"\n2,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for n := uint64(1); ; n++ {
		document, ok := bytes.CutPrefix(l.answer(n), []byte(source.InputDocument))
		if !ok {
			break
		}
		if len(document) > source.MaxInputDocument {
			t.Fatalf("document %d has %d bytes", n, len(document))
		}
		if n > 1 {
			document = bytes.TrimPrefix(document, []byte("timestamp,value\n"))
		}
		all = append(all, document...)
	}
	if string(all) != "timestamp,value\n1,"+long+"\n2,5\n" {
		t.Errorf("%d bytes came of a stream of %d", len(all), len(long)+23)
	}
}
