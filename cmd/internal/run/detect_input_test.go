package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// TestClock: each record has the arrival of the part in which it ends, and one whose quoted field
// has a line end does not make the records behind it later.
func TestClock(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	c := clock{
		text:     []byte("h\naa\nbb\nc\"\n\"c\ndd"),
		arrivals: []userfile.Arrival{{End: 6, At: at(1)}, {End: 8, At: at(2)}, {End: 17, At: at(3)}},
	}
	for i, want := range []int{1, 1, 2, 3, 3, 3, 3} {
		if got := c.next(); !got.Equal(at(want)) {
			t.Errorf("line %d arrived at %v, want %v", i, got, at(want))
		}
	}
	if got := (&clock{}).next(); time.Since(got) > time.Minute {
		t.Errorf("a record without arrivals arrived at %v, want now", got)
	}
}

// TestEarlierPosition: a position of an earlier program, which knew a file by its first bytes, is
// one in the file with its inode.
func TestEarlierPosition(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.csv")
	text := "timestamp,value\n1,1\n2,2\n3,3\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := statFile(info)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		inode uint64
		want  string
	}{
		"the file":  {id.Inode, "timestamp,value\n3,3\n"},
		"other one": {id.Inode + 1, text},
	} {
		var at position
		if err := json.Unmarshal(fmt.Appendf(nil, `{"file":{"device":%d,"inode":%d,"head":"ab","head_bytes":24},`+
			`"header":16,"offset":24,"records":2}`, id.Device, c.inode), &at); err != nil {
			t.Fatal(err)
		}
		for _, follow := range []string{"", path} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			var said strings.Builder
			o := &detectOptions{In: f, Follow: follow, DataDir: dir, Err: &said}
			in, err := openInput(ctx, o, dialect.CSV{}, "timestamp", at)
			if err != nil {
				t.Fatal(err)
			}
			n := uint64(1)
			doc, err := in.next(ctx, &n)
			for err == nil && string(doc.text) == text[:16] { // the header came alone
				doc, err = in.next(ctx, &n)
			}
			if err != nil || string(doc.text) != c.want ||
				strings.Contains(strings.ReplaceAll(said.String(), "\n", " "), "from its start") != (c.want == text) {
				t.Errorf("%s, follow %q: %q, %v, want %q\n%s", name, follow, doc.text, err, c.want, said.String())
			}
			end()
			in.close()
			_ = f.Close()
		}
	}
}

// TestTakeLastLine: a last line without a line end waits, is left out of a pipe, and is taken on
// demand.
func TestTakeLastLine(t *testing.T) {
	for _, c := range []struct {
		text string
		take bool
		want string
		says string
	}{
		{"timestamp,value\n1,1\n2,12", false, "timestamp,value\n1,1\n", "waits for the next call"},
		{"timestamp,value\n1,1\n2,12", true, "timestamp,value\n1,1\n|timestamp,value\n2,12", ""},
		{"timestamp,value\n1,1\n2,\"1\n", false, "timestamp,value\n1,1\n", "waits for the next call"},
		{"timestamp,value\n1,1\n \n", false, "timestamp,value\n1,1\n \n", ""},
		{`{"timestamp":1,"value":1}` + "\n" + `{"timestamp":2`, false, `{"timestamp":1,"value":1}` + "\n", "waits"},
		{"timestamp,va", false, "", "waits for the next call"},
	} {
		for _, pipe := range []bool{false, true} {
			dir := t.TempDir()
			path := filepath.Join(dir, "input")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			o := &detectOptions{In: f, DataDir: dir, Err: &said, TakeLastLine: c.take}
			if pipe {
				o.In = io.MultiReader(f)
			}
			in, err := openInput(t.Context(), o, dialect.CSV{}, "timestamp", position{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for n := uint64(1); ; {
				doc, err := in.next(t.Context(), &n)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(doc.text))
			}
			says := c.says
			if pipe && says != "" {
				says = "is left out"
			}
			if got := strings.Join(all, "|"); got != c.want || !strings.Contains(said.String(), says) ||
				says == "" && said.Len() > 0 {
				t.Errorf("%q, pipe %v: %q, want %q\n%s", c.text, pipe, got, c.want, said.String())
			}
			in.close()
			_ = f.Close()
		}
	}
}

// TestForeignOutput: a file that is not the one that was noted, though it has its inode and is
// longer, is added to and not cut off.
func TestForeignOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("a\n")
	open := func(last fileMark) place {
		t.Helper()
		p, err := openPlace("--output", path, nil, last)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open(fileMark{})
	if _, err := p.Write([]byte("b\n")); err != nil {
		t.Fatal(err)
	}
	noted := p.mark()
	if _, err := p.Write([]byte("c\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"a\nb\nc\n": "a\nb\n", "x\ny\nz\n": "x\ny\nz\n"} {
		put(text)
		p = open(noted)
		if got, err := os.ReadFile(path); err != nil || string(got) != want || p.size != int64(len(want)) {
			t.Errorf("%q becomes %q, %v, at %d", text, got, err, p.size)
		}
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
	}
}
