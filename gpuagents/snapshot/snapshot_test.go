package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inMemory are pages that a test holds.
type inMemory struct {
	snapshot.Pages
	data []byte
}

func newPages(t testing.TB, vars []kernels.Var, agents, groups, pageBytes int) *inMemory {
	t.Helper()
	l, err := kernels.NewLayout(vars, agents, pageBytes)
	testkit.NoError(t, "kernels.NewLayout", err)
	p := &inMemory{snapshot.Pages{Layout: l, Groups: groups}, make([]byte, (groups+l.Slots-1)/l.Slots*pageBytes)}
	p.Read = func(page uint64, buf []byte) error {
		copy(buf, p.data[int(page)*pageBytes:][:pageBytes])
		return nil
	}
	p.Write = func(page uint64, content []byte) error {
		if len(content) != pageBytes {
			return fmt.Errorf("a page of %d bytes", len(content))
		}
		copy(p.data[int(page)*pageBytes:], content)
		return nil
	}
	return p
}

// element is where the layout's description puts element c of a row of a variable: row is an agent
// of the swarm, or a group.
func (p *inMemory) element(v, row, c int) []byte {
	l, of := p.Layout, p.Layout.Vars[v]
	a, agents := row%l.Agents, l.Agents
	group := row / l.Agents
	if of.Group {
		a, agents, group = 0, 1, row
	}
	s := group % l.Slots
	at := (c*l.Slots+s)*agents + a
	if of.Together {
		at = (s*agents+a)*of.Width + c
	}
	B := of.Elem.Bytes()
	return p.data[group/l.Slots*l.PageBytes+int(l.Offsets[v])+at*B:][:B]
}

func (p *inMemory) rows(v int) int {
	if p.Layout.Vars[v].Group {
		return p.Groups
	}
	return p.Groups * p.Layout.Agents
}

// dense is a variable as its files have it.
func (p *inMemory) dense(v int) (all []byte) {
	for row := range p.rows(v) {
		for c := range p.Layout.Vars[v].Width {
			all = append(all, p.element(v, row, c)...)
		}
	}
	return all
}

// randomize fills the state and leaves what is between it zeros.
func (p *inMemory) randomize(r *rand.Rand) {
	for v, of := range p.Layout.Vars {
		for row := range p.rows(v) {
			for c := range of.Width {
				for i := range p.element(v, row, c) {
					p.element(v, row, c)[i] = byte(r.Uint32())
				}
			}
		}
	}
}

func randomVars(r *rand.Rand) (vars []kernels.Var) {
	for i := range 1 + r.IntN(5) {
		vars = append(vars, kernels.Var{
			Name: fmt.Sprint("v", i), Elem: kernels.Elem(1 + r.IntN(5)), Width: 1 + r.IntN(6), Group: r.IntN(3) == 0,
			Together: r.IntN(2) == 0,
		})
	}
	return vars
}

func open(t testing.TB, dir string) *bucket.Folder {
	t.Helper()
	b, err := bucket.OpenFolder(dir)
	testkit.NoError(t, "folder.Open", err)
	testkit.Close(t, b)
	return b
}

// head is the part of a manifest that the owner of the state gives.
func head(name string) snapshot.Manifest {
	return snapshot.Manifest{
		Name: name, Swarm: snapshot.Origin{ID: "neurons", Name: "neurons", Created: time.Unix(1_700_000_000, 5).UTC()},
		Entry: 7,
		Cell:  "leaky", Seed: 1<<63 + 1, Spec: []byte(`{"name":"neurons"}`),
	}
}

// TestRoundTrip: random states of random variables, in groups, pages and files of random sizes. The
// files have the state in the order of agents; pages of another size that are loaded from them have
// it again; more groups than there were have seen nothing, and fewer are the first ones.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		vars, agents, groups := randomVars(r), 1+r.IntN(9), 1+r.IntN(120)
		pageBytes := func() int { return 256 * (8 + r.IntN(60)) }
		store := open(t, t.TempDir())
		a := newPages(t, vars, agents, groups, pageBytes())
		a.randomize(r)
		fileBytes := len(a.dense(0)) / (1 + r.IntN(8))
		m, digest, err := snapshot.SaveFiles(t.Context(), store, head("s"), &a.Pages, fileBytes)
		if err != nil {
			t.Fatalf("seed %d: save: %v, want no error", seed, err)
		}
		read, sum, err := snapshot.ReadManifest(t.Context(), store, "s")
		if err != nil || sum != digest || read.Bytes() != m.Bytes() || read.Seed != 1<<63+1 ||
			read.Agents != int64(groups*agents) {
			t.Fatalf("seed %d: %v, %s and %s\n%s", seed, err, sum, digest, cmp.Diff(m, read))
		}
		if err := snapshot.Verify(t.Context(), store, read, nil); err != nil {
			t.Fatalf("seed %d: verify: %v, want no error", seed, err)
		}
		for v := range vars {
			if got := content(t, store, read, v); !bytes.Equal(got, a.dense(v)) {
				t.Fatalf("seed %d: variable %d of %+v differs in its files", seed, v, vars)
			}
		}
		// The same state from other pages is the same snapshot.
		b := newPages(t, vars, agents, groups, pageBytes())
		if err := snapshot.Load(t.Context(), store, read, &b.Pages); err != nil {
			t.Fatalf("seed %d: load: %v, want no error", seed, err)
		}
		m2, digest2, err := snapshot.SaveFiles(t.Context(), open(t, t.TempDir()), head("s"), &b.Pages, fileBytes)
		if err != nil || digest2 != digest {
			t.Fatalf("seed %d: %v: another snapshot of the same state\n%s", seed, err, cmp.Diff(m, m2))
		}
		c := newPages(t, vars, agents, 1+r.IntN(2*groups), pageBytes())
		if err := snapshot.Load(t.Context(), store, read, &c.Pages); err != nil {
			t.Fatalf("seed %d: load into other numbers of groups: %v, want no error", seed, err)
		}
		for v := range vars {
			was, is := a.dense(v), c.dense(v)
			n := min(len(was), len(is))
			if !bytes.Equal(was[:n], is[:n]) || len(bytes.Trim(is[n:], "\x00")) != 0 {
				t.Fatalf("seed %d: %d groups of %d: variable %d differs", seed, c.Groups, groups, v)
			}
		}
	}
}

// content reads the files of a variable as a reader in another language does.
func content(t *testing.T, store snapshot.Store, m *snapshot.Manifest, v int) (all []byte) {
	t.Helper()
	var next int64
	for _, f := range m.Variables[v].Files {
		data := object(t, store, m.Name+"/"+f.Name)
		sum := sha256.Sum256(data)
		r := bytes.NewReader(data)
		a, err := snapshot.ReadHeader(r)
		_, rows, width := a.Told()
		if err != nil || rows != f.Rows || width != int64(m.Variables[v].Width) || (len(data)-r.Len())%64 != 0 ||
			hex.EncodeToString(sum[:]) != f.SHA256 || int64(len(data)) != f.Bytes {
			t.Fatalf("%s: %v, [%d, %d] behind %d bytes", f.Name, err, rows, width, len(data)-r.Len())
		}
		next += rows
		all = append(all, data[len(data)-r.Len():]...)
	}
	return all
}

func object(t testing.TB, store snapshot.Store, name string) []byte {
	t.Helper()
	in, err := store.Open(t.Context(), name)
	testkit.NoError(t, "store.Open", err)
	data, err := io.ReadAll(in)
	if err = errors.Join(err, in.Close()); err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
	return data
}

// few is a small state of three files a variable, and straddled pages.
func few(t *testing.T, pageBytes int) *inMemory {
	t.Helper()
	p := newPages(t, []kernels.Var{
		{Name: "round", Elem: kernels.U64, Width: 1, Group: true},
		{Name: "row", Elem: kernels.F32, Width: 3, Together: true},
		{Name: "trace", Elem: kernels.BF16, Width: 2},
	}, 5, 13, pageBytes)
	p.randomize(rand.New(rand.NewPCG(1, 1)))
	return p
}

const fewBytes = 6 * 5 * 12 // groups of row: six a file, four a page

// faults is a store that fails one call.
type faults struct {
	snapshot.Store
	calls chan int // has how many calls may still be made before the one that fails
}

var errFault = errors.New("the fault")

func (f faults) fail() error {
	n := <-f.calls
	f.calls <- n - 1
	if n == 0 {
		return errFault
	}
	return nil
}

func (f faults) left() int {
	n := <-f.calls
	f.calls <- n
	return n
}

func faulty(s snapshot.Store, after int) faults {
	f := faults{s, make(chan int, 1)}
	f.calls <- after
	return f
}

// Create implements snapshot.Store.
func (f faults) Create(ctx context.Context, name string) (snapshot.Object, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	o, err := f.Store.Create(ctx, name)
	return faultyObject{o, f}, err
}

// Open implements snapshot.Store.
func (f faults) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	in, err := f.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return faultyReader{in, f}, nil
}

// Sweep implements snapshot.Store.
func (f faults) Sweep(ctx context.Context, folder string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.Store.Sweep(ctx, folder)
}

type faultyObject struct {
	snapshot.Object
	f faults
}

// Write implements io.Writer.
func (o faultyObject) Write(p []byte) (int, error) {
	if err := o.f.fail(); err != nil {
		n, _ := o.Object.Write(p[:len(p)/2])
		return n, err
	}
	return o.Object.Write(p)
}

// Commit implements snapshot.Object.
func (o faultyObject) Commit() error {
	if err := o.f.fail(); err != nil {
		return err
	}
	return o.Object.Commit()
}

type faultyReader struct {
	io.ReadCloser
	f faults
}

// Read implements io.Reader.
func (r faultyReader) Read(p []byte) (int, error) {
	if err := r.f.fail(); err != nil {
		return 0, err
	}
	return r.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (r faultyReader) Close() error { return errors.Join(r.f.fail(), r.ReadCloser.Close()) }

// pagesFail makes the calls of pages fail, as faulty does for a store.
func pagesFail(p *inMemory, f faults) *snapshot.Pages {
	q := p.Pages
	q.Read = func(page uint64, buf []byte) error { return errors.Join(f.fail(), p.Read(page, buf)) }
	q.Write = func(page uint64, content []byte) error { return errors.Join(f.fail(), p.Write(page, content)) }
	return &q
}

// TestFaults fails each call of store and pages in turn. A snapshot that was not completed does not
// exist, and the next attempt makes it over what is left; one that could not be read says so.
func TestFaults(t *testing.T) {
	p := few(t, 768)
	whole := open(t, t.TempDir())
	_, want, err := snapshot.SaveFiles(t.Context(), whole, head("s"), &p.Pages, fewBytes)
	testkit.NoError(t, "snapshot.SaveFiles", err)
	failed := 0
	for n := 0; ; n++ {
		dir := t.TempDir()
		store := open(t, dir)
		f := faulty(store, n)
		_, _, err := snapshot.SaveFiles(t.Context(), f, head("s"), pagesFail(p, f), fewBytes)
		if err == nil {
			if f.left() < 0 {
				t.Fatalf("call %d failed, and nobody says so", n)
			}
			break
		}
		failed++
		if !errors.Is(err, errFault) {
			t.Fatalf("call %d: %v", n, err)
		}
		if _, _, err := snapshot.ReadManifest(t.Context(), store, "s"); !errors.Is(err, snapshot.ErrNotFound) {
			t.Fatalf("call %d: %v: a snapshot that was not completed", n, err)
		}
		// What a killed process leaves: a file that was begun.
		testkit.NoError(t, "os.MkdirAll", os.MkdirAll(filepath.Join(dir, "s"), 0o755))
		rest := filepath.Join(dir, "s", "row-00000.npy.X.partial")
		testkit.NoError(t, "os.WriteFile", os.WriteFile(rest, []byte("x"), 0o644))
		m, digest, err := snapshot.SaveFiles(t.Context(), store, head("s"), &p.Pages, fewBytes)
		if err != nil || digest != want {
			t.Fatalf("call %d: once more: %s, %v", n, digest, err)
		}
		if err := snapshot.Verify(t.Context(), store, m, nil); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		names, err := filepath.Glob(filepath.Join(dir, "s", "*"))
		if err != nil || len(names) != 10 {
			t.Fatalf("call %d: it left %v: %v", n, names, err)
		}
	}
	if failed < 30 {
		t.Errorf("saving made %d calls", failed)
	}
	for n := 0; ; n++ {
		f := faulty(whole, n)
		q := newPages(t, p.Layout.Vars, 5, 15, 1024)
		m, _, err := snapshot.ReadManifest(t.Context(), f, "s")
		if err == nil {
			err = snapshot.Load(t.Context(), f, m, pagesFail(q, f))
		}
		if err == nil {
			if f.left() < 0 {
				t.Fatalf("call %d of reading failed, and nobody says so", n)
			}
			break
		}
		if !errors.Is(err, errFault) || errors.Is(err, snapshot.ErrCorrupt) {
			t.Fatalf("call %d of reading: %v", n, err)
		}
	}
}

// TestFlips changes each byte of each file in turn, cuts files off, adds to them and removes them:
// it is found.
func TestFlips(t *testing.T) {
	p, dir := few(t, 768), t.TempDir()
	store := open(t, dir)
	m, digest, err := snapshot.SaveFiles(t.Context(), store, head("s"), &p.Pages, fewBytes)
	testkit.NoError(t, "snapshot.SaveFiles", err)
	check := func(what string, loads bool) {
		t.Helper()
		if err := snapshot.Verify(t.Context(), store, m, nil); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: verify: %v", what, err)
		}
		q := newPages(t, p.Layout.Vars, 5, 13, 768)
		if err := snapshot.Load(t.Context(), store, m, &q.Pages); loads && !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: load: %v", what, err)
		}
	}
	flips := 0
	for _, v := range m.Variables {
		for _, f := range v.Files {
			path := filepath.Join(dir, "s", f.Name)
			data, err := os.ReadFile(path)
			testkit.NoError(t, "os.ReadFile", err)
			set := func(data []byte) {
				t.Helper()
				testkit.NoError(t, "os.WriteFile", os.WriteFile(path, data, 0o644))
			}
			for i := 0; i < len(data); i += testkit.Of(1, 5) {
				bad := slices.Clone(data)
				bad[i] ^= 1 << (i % 8)
				set(bad)
				check(fmt.Sprintf("%s, byte %d", f.Name, i), i%9 == 0)
				flips++
			}
			for _, n := range []int{0, 5, 64, len(data) - 1} {
				set(data[:n])
				check(fmt.Sprintf("%s of %d bytes", f.Name, n), true)
			}
			set(append(slices.Clone(data), 0))
			check(f.Name+" and a byte", true)
			testkit.NoError(t, "os.Remove", os.Remove(path))
			check(f.Name+" missing", true)
			set(data)
		}
	}
	if err := snapshot.Verify(t.Context(), store, m, nil); err != nil || flips < testkit.Of(1000, 200) {
		t.Fatalf("%d flips, and after them: %v", flips, err)
	}
	path := filepath.Join(dir, "s", snapshot.ManifestName)
	data, err := os.ReadFile(path)
	testkit.NoError(t, "os.ReadFile", err)
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 1 << (i % 8)
		testkit.NoError(t, "os.WriteFile", os.WriteFile(path, bad, 0o644))
		if _, sum, err := snapshot.ReadManifest(t.Context(), store, "s"); err == nil && sum == digest {
			t.Fatalf("manifest, byte %d: nobody sees it", i)
		}
	}
}

// TestExists: a snapshot is written once. The same entry of the same swarm finds it; another entry
// or swarm gets ErrExists.
func TestExists(t *testing.T) {
	p, dir := few(t, 768), t.TempDir()
	store := open(t, dir)
	_, digest, err := snapshot.Save(t.Context(), store, head("s"), &p.Pages)
	testkit.NoError(t, "snapshot.Save", err)
	unread := p.Pages
	unread.Read = func(uint64, []byte) error { return errFault }
	if m, again, err := snapshot.Save(t.Context(), store, head("s"), &unread); err != nil || again != digest ||
		m.Entry != 7 {
		t.Errorf("the same once more: %s, %v", again, err)
	}
	for what, change := range map[string]func(m *snapshot.Manifest){
		"entry": func(m *snapshot.Manifest) { m.Entry++ },
		"swarm": func(m *snapshot.Manifest) { m.Swarm.ID = "others" },
		"time":  func(m *snapshot.Manifest) { m.Swarm.Created = m.Swarm.Created.Add(1) },
	} {
		m := head("s")
		change(&m)
		if _, _, err := snapshot.Save(t.Context(), store, m, &p.Pages); !errors.Is(err, snapshot.ErrExists) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "s", snapshot.ManifestName), []byte("{}"), 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	if _, _, err := snapshot.Save(t.Context(), store, head("s"), &p.Pages); !errors.Is(err, snapshot.ErrExists) {
		t.Errorf("something else of that name: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", "a b"} {
		if _, _, err := snapshot.Save(t.Context(), store, head(name), &p.Pages); err == nil ||
			errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("%q: %v, want an error other than %v", name, err, snapshot.ErrNotFound)
		}
	}
}

// TestMismatch: other variables or groups are refused with what differs, and no page is touched.
func TestMismatch(t *testing.T) {
	p := few(t, 768)
	store := open(t, t.TempDir())
	m, _, err := snapshot.Save(t.Context(), store, head("s"), &p.Pages)
	testkit.NoError(t, "snapshot.Save", err)
	for says, change := range map[string]func(vars []kernels.Var) ([]kernels.Var, int){
		"its groups have 5 agents, the groups of the swarm 6": func(v []kernels.Var) ([]kernels.Var, int) {
			return v, 6
		},

		"it has 3 state variables, the swarm 2": func(v []kernels.Var) ([]kernels.Var, int) { return v[:2], 5 },

		"its state variable 1 is row, 3 float32 a agent, in the swarm row, 4 float32 " +
			"a agent": func(v []kernels.Var) ([]kernels.Var, int) { v[1].Width = 4; return v, 5 },
		"its state variable 2 is trace, 2 bfloat16 a agent, in the swarm trace, 2 " +
			"float32 a": func(v []kernels.Var) ([]kernels.Var, int) { v[2].Elem = kernels.F32; return v, 5 },
		"its state variable 0 is round, 1 uint64 a group, in the swarm turn, 1 uint64 " +
			"a group": func(v []kernels.Var) ([]kernels.Var, int) { v[0].Name = "turn"; return v, 5 },
		"its state variable 0 is round, 1 uint64 a group, in the swarm round, 1 uint64 " +
			"a agent": func(v []kernels.Var) ([]kernels.Var, int) { v[0].Group = false; return v, 5 },
	} {
		vars, agents := change(slices.Clone(p.Layout.Vars))
		q := newPages(t, vars, agents, 13, 1024)
		q.Write = func(uint64, []byte) error { t.Error("a page is written"); return nil }
		if err := snapshot.Load(t.Context(), store, m, &q.Pages); !errors.Is(err, snapshot.ErrMismatch) ||
			!bytes.Contains([]byte(err.Error()), []byte(says)) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

// TestCancelled: saving and loading end with their context, with its cause, and leave no snapshot
// and no file that was begun.
func TestCancelled(t *testing.T) {
	p, dir := few(t, 768), t.TempDir()
	store := open(t, dir)
	why := errors.New("the agent drains")
	ctx, cancel := context.WithCancelCause(t.Context())
	q := p.Pages
	q.Read = func(page uint64, buf []byte) error { cancel(why); return p.Read(page, buf) }
	if _, _, err := snapshot.SaveFiles(ctx, store, head("s"), &q, fewBytes); !errors.Is(err, why) {
		t.Fatalf("snapshot.SaveFiles: %v, want %v", err, why)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "s", "*")); err != nil || len(names) != 0 {
		t.Errorf("left %v: %v", names, err)
	}
	m, _, err := snapshot.SaveFiles(t.Context(), store, head("s"), &p.Pages, fewBytes)
	testkit.NoError(t, "snapshot.SaveFiles", err)
	if err := snapshot.Load(ctx, store, m, &p.Pages); !errors.Is(err, why) {
		t.Errorf("snapshot.Load: %v, want %v", err, why)
	}
	if err := snapshot.Verify(ctx, store, m, nil); !errors.Is(err, why) {
		t.Errorf("snapshot.Verify: %v, want %v", err, why)
	}
}
