package run

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// rotating is a writer of a file, whoever rotates the file, and a detector that follows it.
type rotating struct {
	*rapid.T
	dir, path string
	csv       dialect.CSV
	header    string
	rotated   string // the name of a rotated file; %d is its number
	written   []string
	rows      []string // whole
	part      string   // of the next row, that is not written
	clock     time.Time

	pos    position
	taken  []string // committed
	in     *input
	n      uint64
	doc    *reading
	skip   int
	ctx    context.Context //nolint:containedctx // of one process, whose fields these are
	end    context.CancelFunc
	count  uint64 // records of the file
	note   bytes.Buffer
	killed int
}

// patience is the time after which a row is lost.
const patience = 3 * time.Second

// reading is a document with some rows read.
type reading struct {
	document
	r  rows.Reader
	at position
}

func (r *rotating) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v\n%s", err, r.note.String())
	}
}

// tick waits until the file system gives files another time of modification.
func (r *rotating) tick() {
	path := filepath.Join(r.dir, "data", "clock")
	for before := r.clock; !r.clock.After(before); { // writing takes time
		r.must(os.WriteFile(path, []byte("x"), 0o644))
		info, err := os.Stat(path)
		r.must(err)
		r.clock = info.ModTime()
	}
}

// add appends to a file.
func (r *rotating) add(path, text string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	r.must(err)
	_, err = f.WriteString(text)
	r.must(errors.Join(err, f.Close()))
}

// row makes the next row.
func (r *rotating) row() string {
	i := len(r.rows)
	if r.header == "" && r.csv.HasHeader() {
		return fmt.Sprintf(`{"timestamp":%d,"value":%d,"note":"a\nb","end":%d}`+"\n", 1700000000+i, i, i)
	}
	note := []string{"", "x", "\"a\nb\"", "\"a \"\"\n,\"\"\n\"", "\"\n\n\""}[i%5]
	return fmt.Sprintf("%d,%d,%s,%d\n", 1700000000+i, i, note, i)
}

// write appends up to n bytes of rows to the file with the path.
func (r *rotating) write(n int) {
	var text strings.Builder
	for n > 0 {
		if r.part == "" {
			r.part = r.row()
		}
		piece := r.part[:min(n, len(r.part))]
		text.WriteString(piece)
		if r.part, n = r.part[len(piece):], n-len(piece); r.part == "" {
			r.rows = append(r.rows, "")
		}
	}
	r.add(r.path, text.String())
}

// shift gives each rotated file the next number, and returns the first name.
func (r *rotating) shift() string {
	for i := len(r.written); i > 0; i-- {
		for _, pack := range []string{"", ".gz"} {
			err := os.Rename(fmt.Sprintf(r.rotated, i)+pack, fmt.Sprintf(r.rotated, i+1)+pack)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				r.Fatal(err)
			}
		}
	}
	r.written = append(r.written, "")
	return fmt.Sprintf(r.rotated, 1)
}

func (r *rotating) read(path string) []byte {
	data, err := os.ReadFile(path)
	r.must(err)
	return data
}

// rename rotates by a new name. The writer ends its row in the old file.
func (r *rotating) rename() {
	to := r.shift()
	r.must(os.Rename(r.path, to))
	r.tick()
	if len(r.part) > 0 && rapid.Bool().Draw(r.T, "created first") {
		r.add(r.path, "")
	}
	if len(r.part) > 0 {
		r.tick()
		r.add(to, r.part)
		r.part, r.rows = "", append(r.rows, "")
	}
	r.tick()
	r.add(r.path, r.header)
}

// truncate rotates by a copy. The writer continues in the same file, wherever in a row it is, but
// for its last bytes: a file that begins with a line end alone begins as any other one.
func (r *rotating) truncate() {
	if len(r.part) < 8 {
		r.write(len(r.part))
	}
	to := r.shift()
	r.must(os.WriteFile(to, r.read(r.path), 0o644))
	r.tick()
	r.must(os.Truncate(r.path, 0))
}

// rewrite truncates the file and begins again, when all is read.
func (r *rotating) rewrite() {
	if r.part != "" {
		return
	}
	r.take(len(r.rows) - len(r.taken))
	r.must(os.WriteFile(r.path, []byte(r.header+r.row()), 0o644))
	r.rows = append(r.rows, "")
}

// replace replaces the file by a copy of itself, which has another inode.
func (r *rotating) replace() {
	r.must(os.WriteFile(r.path+".tmp", r.read(r.path), 0o644))
	r.must(os.Rename(r.path+".tmp", r.path))
}

// pack packs a rotated file, which keeps its time.
func (r *rotating) pack() {
	if len(r.written) == 0 {
		return
	}
	name := fmt.Sprintf(r.rotated, rapid.IntRange(1, len(r.written)).Draw(r.T, "file"))
	info, err := os.Stat(name)
	if err != nil { // it is packed
		return
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(r.read(name))
	r.must(errors.Join(err, z.Close()))
	r.must(os.WriteFile(name+".gz", packed.Bytes(), 0o644))
	r.must(os.Chtimes(name+".gz", info.ModTime(), info.ModTime()))
	r.must(os.Remove(name))
}

// open opens the input at the position that is stored.
func (r *rotating) open() {
	r.ctx, r.end = context.WithCancel(context.Background())
	defer time.AfterFunc(patience, r.end).Stop()
	o := &detectOptions{Follow: r.path, DataDir: filepath.Join(r.dir, "data"), Err: &r.note}
	var err error
	r.in, err = openInput(r.ctx, o, r.csv, "timestamp", r.pos)
	r.must(err)
	r.n, r.doc = 1, nil
	if r.pos == (position{}) {
		r.pos = r.in.at
	}
	if r.skip, r.count = 0, 0; r.in.found {
		r.skip, r.count = r.in.at.Skip, r.in.at.Records-uint64(r.in.at.Skip)
	}
}

// kill ends the detector. What it has read and not stored is forgotten.
func (r *rotating) kill() {
	if r.in == nil {
		return
	}
	r.end()
	r.in.close()
	r.in = nil
	r.killed++
}

// take reads and stores the next rows.
func (r *rotating) take(n int) {
	if n == 0 {
		return
	}
	if r.in == nil {
		r.open()
	}
	defer time.AfterFunc(patience, r.end).Stop()
	for n > 0 {
		if r.doc == nil {
			doc, err := r.in.next(r.ctx, &r.n)
			if err != nil {
				r.Fatalf("%d rows are taken, and %d written, and then %v at %+v\n%s%v", len(r.taken), len(r.rows), err,
					r.in.at, r.note.String(), r.list())
			}
			if doc.first {
				r.count = 0
			}
			if doc.empty() {
				continue
			}
			doc.text = bytes.Clone(doc.text) // it is valid until the next
			of, err := rows.OpenText(doc.name, io.NopCloser(bytes.NewReader(doc.text)), doc.format, rows.ColumnSpec{
				Timestamp: "timestamp", Features: []string{"value"}, AnyOrder: true, CSV: &r.csv,
			})
			r.must(err)
			r.doc = &reading{document: doc, r: of, at: doc.begin}
			r.doc.at.Skip = 0
		}
		row, rejected, err := r.doc.r.Next()
		if errors.Is(err, io.EOF) {
			r.doc.end.Records = r.count
			r.pos, r.doc = r.doc.end, nil
			continue
		}
		r.must(err)
		if rejected != nil {
			r.Fatalf("row %d is rejected: %s\n%s%v", len(r.taken)+1, rejected.Reason, r.note.String(), r.list())
		}
		r.count++
		r.doc.at.Skip++
		r.doc.at.Records = r.count
		if r.skip > 0 {
			r.skip--
			continue
		}
		if want := len(r.taken); row.Values[0] != float64(want) || row.Timestamp != fmt.Sprint(1700000000+want) {
			r.Fatalf("row %d is %s, %v\n%s%v", want, row.Timestamp, row.Values, r.note.String(), r.list())
		}
		r.taken = append(r.taken, row.Timestamp)
		if r.pos = r.doc.at; r.doc.begin.File != r.doc.end.File { // the document is the record that was cut in two
			r.pos = r.doc.end
			r.pos.Records = r.count
		}
		n--
	}
}

// list returns the contents of the folder.
func (r *rotating) list() string {
	var all strings.Builder
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		data, _ := os.ReadFile(filepath.Join(r.dir, e.Name()))
		fmt.Fprintf(&all, "%s: %q\n", e.Name(), bytes.ReplaceAll(data, []byte(strings.Repeat("x", 70_000)), nil))
	}
	return all.String()
}

// TestRotations: whatever is done to a file, the detector takes each row of its writer once.
func TestRotations(t *testing.T) {
	testkit.Checks(t, 60)
	headless, root := false, t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "rotations-") //nolint:usetesting // each case has its own
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		r := &rotating{T: t, dir: dir, clock: time.Now()}
		r.must(os.Mkdir(filepath.Join(dir, "data"), 0o755))
		name := rapid.SampledFrom([]string{"app.csv", "app.log", "app.ndjson", "headless.csv"}).Draw(t, "name")
		r.path = filepath.Join(dir, name)
		truncates := 1 // -1 and 0: all or none of the rotations, of the same inode
		switch name {
		case "app.csv", "app.log":
			wide := rapid.SampledFrom([]int{0, 0, 0, 70_000}).Draw(t, "wide")
			r.header = "timestamp,value,note,end" + strings.Repeat("x", wide) + "\n"
		case "headless.csv": // nothing tells a row that was cut in two from one that was not ended
			truncates = rapid.IntRange(-1, 0).Draw(t, "truncates")
			r.csv.Header, r.csv.Names = &headless, []string{"timestamp", "value", "note", "end"}
		}
		r.rotated = r.path + rapid.SampledFrom([]string{".%d", "-%d.old"}).Draw(t, "rotated")
		if !strings.HasSuffix(r.rotated, "d") { // the last is the newest
			r.rotated = r.path + ".%d"
		}
		r.add(r.path, r.header)
		defer r.kill()
		r.write(1)
		r.write(len(r.part))
		r.open()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			r.tick()
			switch rapid.SampledFrom([]string{
				"write", "write", "write", "take", "take", "kill", "rename", "truncate", "copy", "replace", "pack",
				"rewrite",
			}).Draw(t, "step") {
			case "write":
				r.write(rapid.SampledFrom([]int{1, 2, 5, 13, 100, 3000}).Draw(t, "bytes"))
			case "take":
				r.take(rapid.IntRange(0, len(r.rows)-len(r.taken)).Draw(t, "rows"))
			case "kill":
				r.kill()
			case "rename":
				if truncates >= 0 {
					r.rename()
				}
			case "truncate":
				if truncates != 0 {
					r.truncate()
				}
			case "copy":
				r.must(os.WriteFile(r.path+".bak", r.read(r.path), 0o644))
			case "replace":
				if truncates >= 0 {
					r.replace()
				}
			case "pack":
				r.pack()
			case "rewrite":
				r.rewrite()
			}
		}
		r.take(len(r.rows) - len(r.taken))
		if !slices.IsSorted(r.taken) || len(r.taken) != len(r.rows) {
			t.Fatalf("%d rows of %d are taken", len(r.taken), len(r.rows))
		}
	})
}
