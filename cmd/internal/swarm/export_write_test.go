package swarm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var vars = []kernels.Var{
	{Name: "row", Elem: kernels.F32, Width: 3},
	{Name: "vote", Elem: kernels.U8, Width: 1},
	{Name: "half", Elem: kernels.BF16, Width: 2, Together: true},
	{Name: "round", Elem: kernels.U64, Width: 1, Group: true},
	{Name: "latest", Elem: kernels.I64, Width: 2, Group: true},
}

// saved saves random pages as a snapshot of some shards, and returns its parts.
func saved(t testing.TB, dir string, groups, agents, shards int) (*bucket.Folder, []*snapshot.Manifest) {
	t.Helper()
	b, err := bucket.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	of := swarms.Swarm{ID: "few", Name: "few", Created: time.Unix(1, 0).UTC(), Groups: groups, Shards: shards}
	r := rand.New(rand.NewPCG(7, 8))
	for k := range of.ShardCount() {
		first, end := of.ShardGroups(k)
		l, err := kernels.NewLayout(vars, agents, 4096)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, (end-first+l.Slots-1)/l.Slots*4096)
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], r.Uint64())
		}
		p := &snapshot.Pages{Layout: l, Groups: end - first, First: first}
		p.Read = func(page uint64, to []byte) error {
			copy(to, data[4096*page:][:4096])
			return nil
		}
		m := snapshot.Manifest{Name: "kept", Swarm: snapshot.OriginOf(of), Entry: 3, Cell: "leaky", Spec: []byte("{}")}
		if shards > 1 {
			m.Name = snapshot.PartName("kept", k)
			m.Shard = &snapshot.Shard{Number: k, Of: shards, First: first, Groups: groups}
		}
		if _, _, err := snapshot.Save(t.Context(), b, m, p); err != nil {
			t.Fatal(err)
		}
	}
	parts, _, err := snapshot.ReadSet(t.Context(), b, "kept")
	if err != nil {
		t.Fatal(err)
	}
	return b, parts
}

// content returns the elements of a variable, which the test reads from the files by itself.
func content(t testing.TB, dir string, parts []*snapshot.Manifest, name string) (all []byte) {
	t.Helper()
	for _, m := range parts {
		v, err := m.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range v.Files {
			data, err := os.ReadFile(filepath.Join(dir, m.Name, f.Name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data[len(data)-int(f.Rows)*v.RowBytes():]...)
		}
	}
	if name != "half" {
		return all
	}
	wide := make([]byte, 0, 2*len(all))
	for i := 0; i < len(all); i += 2 {
		wide = append(wide, 0, 0, all[i], all[i+1])
	}
	return wide
}

// keys are the keys of every third group.
type keys struct{}

func (keys) Columns() []string { return []string{"site", "group"} }

func (keys) Values(to []string, group int) ([]string, bool) {
	return append(to, fmt.Sprint("site ", group), fmt.Sprint(group*2)), group%3 == 0
}

// A table has the elements of the files of all shards in the order of the swarm, in both formats;
// an Arrow file has the ids and keys too.
func TestWrite(t *testing.T) {
	for _, shards := range []int{1, 3} {
		dir := t.TempDir()
		b, parts := saved(t, dir, 100, 7, shards)
		for _, v := range vars {
			t.Run(fmt.Sprint(v.Name, shards), func(t *testing.T) {
				want := content(t, dir, parts, v.Name)
				var out bytes.Buffer
				o := variableOptions{Variable: v.Name, Format: npyFormat}
				r, err := writeVariable(t.Context(), b, parts, o, &out)
				if err != nil {
					t.Fatal(err)
				}
				whole := bytes.Clone(out.Bytes())
				a, err := numpy.Read(&out, 1<<20)
				if err != nil || !bytes.Equal(a.Data, want) {
					t.Fatalf("%v: %d bytes, want %d", err, len(a.Data), len(want))
				}
				rows := int64(700)
				if v.Group {
					rows = 100
				}
				placed := &memoryFile{}
				_, err = writeVariable(t.Context(), b, parts, o, placed)
				if err != nil || !bytes.Equal(placed.data, whole) {
					t.Fatalf("at places: %v, and the file is the same: %v", err, bytes.Equal(placed.data, whole))
				}
				if !slices.Equal(a.Shape, []int64{rows, int64(v.Width)}) || r.Rows != rows {
					t.Errorf("shape %v of %d rows", a.Shape, r.Rows)
				}
				out.Reset()
				_, err = writeVariable(t.Context(), b, parts,
					variableOptions{Variable: v.Name, Format: arrowFormat, Keys: keys{}}, &out)
				if err != nil {
					t.Fatal(err)
				}
				checkArrow(t, out.Bytes(), v, rows, want)
			})
		}
	}
}

// memoryFile is a file in memory that is written at places. It has room for most bytes, or for all
// if that is 0.
type memoryFile struct {
	lock sync.Mutex
	data []byte
	most int
}

func (f *memoryFile) Write(p []byte) (int, error) { return f.WriteAt(p, int64(len(f.data))) }

func (f *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.most > 0 && int(at)+len(p) > f.most {
		return 0, io.ErrShortWrite
	}
	f.data = append(f.data, make([]byte, max(0, int(at)+len(p)-len(f.data)))...)
	return copy(f.data[at:], p), nil
}

// checkArrow reads an Arrow file and compares it with the elements of a variable.
func checkArrow(t *testing.T, data []byte, v kernels.Var, rows int64, want []byte) {
	t.Helper()
	f, err := ipc.NewFileReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []byte
	row := int64(0)
	for i := range f.NumRecords() {
		batch, err := f.RecordBatch(i)
		if err != nil {
			t.Fatal(err)
		}
		column := func(name string) arrow.Array {
			at := batch.Schema().FieldIndices(name)
			if len(at) != 1 {
				t.Fatalf("%d columns %s in %v", len(at), name, batch.Schema())
			}
			return batch.Column(at[0])
		}
		for j := range int(batch.NumRows()) {
			group := int(row)
			if !v.Group {
				group = int(row) / 7
				if id := column("agent").(*array.Uint32).Value(j); int64(id) != row {
					t.Fatalf("row %d is of agent %d", row, id)
				}
			}
			if id := column("group").(*array.Uint32).Value(j); int(id) != group {
				t.Fatalf("row %d is of group %d, want %d", row, id, group)
			}
			site, other := column("site").(*array.String), column("key.group").(*array.String)
			if has := group%3 == 0; site.IsNull(j) == has || other.IsNull(j) == has ||
				has && (site.Value(j) != fmt.Sprint("site ", group) || other.Value(j) != fmt.Sprint(group*2)) {
				t.Fatalf("group %d has the keys %v and %v", group, site.ValueStr(j), other.ValueStr(j))
			}
			row++
		}
		values := column(v.Name)
		if list, ok := values.(*array.FixedSizeList); ok {
			values = list.ListValues()
		}
		got = append(got, values.Data().Buffers()[1].Bytes()...)
	}
	if row != rows || !bytes.Equal(got, want) {
		t.Errorf("%d rows of %d, %d bytes of %d, and they are equal: %v", row, rows, len(got), len(want),
			bytes.Equal(got, want))
	}
}

// One shard of several has the ids that it has in the swarm.
func TestPart(t *testing.T) {
	b, _ := saved(t, t.TempDir(), 100, 7, 3)
	parts, _, err := snapshot.ReadSet(t.Context(), b, "kept-shard1")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := variableOptions{Variable: "vote", Format: arrowFormat}
	if _, err := writeVariable(t.Context(), b, parts, o, &out); err != nil {
		t.Fatal(err)
	}
	f, err := ipc.NewFileReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	batch, err := f.RecordBatch(0)
	if err != nil {
		t.Fatal(err)
	}
	if id := batch.Column(0).(*array.Uint32).Value(0); id != 33*7 {
		t.Errorf("the first agent is %d, want %d", id, 33*7)
	}
}

// A flipped bit in any part is an error, as are other names and formats, and a writer that fails
// ends the reading.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	b, parts := saved(t, dir, 100, 7, 3)
	write := func(o variableOptions, w io.Writer) error {
		_, err := writeVariable(t.Context(), b, parts, o, w)
		return err
	}
	o := variableOptions{Variable: "row", Format: npyFormat}
	err := write(variableOptions{Variable: "speed", Format: npyFormat}, io.Discard)
	if !errors.Is(err, snapshot.ErrVariable) || !strings.Contains(err.Error(), "row, vote, half, round, latest") {
		t.Errorf("another variable: %v", err)
	}
	if err := write(variableOptions{Variable: "row", Format: "csv"}, io.Discard); !errors.Is(err, errFormat) {
		t.Errorf("another format: %v", err)
	}
	if _, err := fileFormatOf("a.csv"); !errors.Is(err, errFormat) {
		t.Errorf("another extension: %v", err)
	}
	if f, err := fileFormatOf("a/b.arrow"); err != nil || f != arrowFormat {
		t.Errorf("%s: %v", f, err)
	}
	if err := write(o, &full{room: 200}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk: %v", err)
	}
	if err := write(o, &memoryFile{most: 2000}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk, at places: %v", err)
	}
	path := filepath.Join(dir, "kept-shard2", "row-00000.npy")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.Writer{io.Discard, &memoryFile{}} {
		if err := write(o, w); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("a flipped bit: %v", err)
		}
	}
	if err := os.Truncate(path, int64(len(data)-5)); err != nil {
		t.Fatal(err)
	}
	if err := write(o, io.Discard); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("a short file: %v", err)
	}
	if err := write(variableOptions{Variable: "vote", Format: npyFormat}, io.Discard); err != nil {
		t.Errorf("another variable of the damaged snapshot: %v", err)
	}
}

// full is a disk with little room.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// The memory of an export does not depend on the snapshot.
func TestMemory(t *testing.T) {
	b, parts := saved(t, t.TempDir(), 20_000, 50, 2)
	for _, f := range []fileFormat{npyFormat, arrowFormat} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o := variableOptions{Variable: "row", Format: f}
		r, err := writeVariable(t.Context(), b, parts, o, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		bytes, grown := r.Rows*12, int64(after.TotalAlloc-before.TotalAlloc)
		t.Logf("%s: %d MB with %d MB of memory", f, bytes>>20, grown>>20)
		if f == npyFormat && grown > 8<<20 {
			t.Errorf("%d bytes allocated for %d", grown, bytes)
		}
	}
}

// BenchmarkExport exports 12 bytes of each of 10 million agents, beside a copy of the same files.
func BenchmarkExport(b *testing.B) {
	dir := b.TempDir()
	store, parts := saved(b, dir, 200_000, 50, 1)
	v, err := parts[0].Find("row")
	if err != nil {
		b.Fatal(err)
	}
	file := func(b *testing.B, write func(io.Writer) error) {
		b.SetBytes(10_000_000 * 12)
		for b.Loop() {
			f, err := os.Create(filepath.Join(dir, "out"))
			if err != nil {
				b.Fatal(err)
			}
			if err := errors.Join(write(f), f.Close()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("copy", func(b *testing.B) {
		file(b, func(w io.Writer) error {
			for _, f := range v.Files {
				in, err := os.Open(filepath.Join(dir, "kept", f.Name))
				if err != nil {
					return err
				}
				_, err = io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{in}) // through memory
				if err := errors.Join(err, in.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for _, f := range []fileFormat{npyFormat, arrowFormat} {
		b.Run(string(f), func(b *testing.B) {
			file(b, func(w io.Writer) error {
				_, err := writeVariable(b.Context(), store, parts, variableOptions{Variable: "row", Format: f}, w)
				return err
			})
		})
	}
}
