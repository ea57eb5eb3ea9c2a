package snapshot_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestNumPy reads a snapshot with the lines that docs/formats/snapshot.md gives, and compares every
// element.
func TestNumPy(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "formats", "snapshot.md"))
	testkit.NoError(t, "os.ReadFile", err)
	lines := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if lines == nil {
		t.Fatal("the page has no lines of Python")
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("there is no python3 with numpy here: %v: %.100s", err, out)
	}
	p, dir := few(t, 768), t.TempDir()
	for row := range p.rows(2) { // a NaN need not keep its bits
		for c := range 2 {
			p.element(2, row, c)[1] &= 0x3f
		}
	}
	if _, _, err := snapshot.SaveFiles(t.Context(), open(t, dir), head("s"), &p.Pages, fewBytes); err != nil {
		t.Fatalf("snapshot.SaveFiles: %v, want no error", err)
	}
	code := "folder = " + fmt.Sprintf("%q", filepath.Join(dir, "s")) + "\n" + string(lines[1]) +
		"print(json.dumps({k: [str(a.dtype), list(a.shape), np.ascontiguousarray(a).tobytes().hex()] for k, a in " +
		"state.items()}))\n"
	out, err := exec.CommandContext(t.Context(), "python3", "-c", code).Output()
	if err != nil {
		t.Fatalf("python3: %v, want no error\n%s", err, code)
	}
	var got map[string][3]any
	testkit.NoError(t, "json.Unmarshal", json.Unmarshal(out, &got))
	widened := make([]byte, 0, 2*len(p.dense(2))) // bfloat16 as float32
	for i, d := 0, p.dense(2); i < len(d); i += 2 {
		widened = append(widened, 0, 0, d[i], d[i+1])
	}
	want := map[string][3]any{
		"round": {"uint64", []any{13.0, 1.0}, hex.EncodeToString(p.dense(0))},
		"row":   {"float32", []any{65.0, 3.0}, hex.EncodeToString(p.dense(1))},
		"trace": {"float32", []any{65.0, 2.0}, hex.EncodeToString(widened)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

// TestHeader: a header is what NumPy writes for the same array, and other texts of it are refused.
func TestHeader(t *testing.T) {
	h := snapshot.Header("<f4", 65, 3)
	const dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (65, 3), }"
	if want := "\x93NUMPY\x01\x00v\x00" + dict + strings.Repeat(" ", 128-10-len(dict)-1) + "\n"; string(h) != want {
		t.Errorf("the header is %q, want %q", h, want)
	}
	for _, bad := range []string{
		"", "\x93NUMPY", "\x93NUMPY\x02\x00", "\x93NUMPY\x01\x00\x03\x00{}\n",
		strings.Replace(string(h), "False", "True ", 1), strings.Replace(string(h), "(65", "(+5", 1),
		strings.Replace(string(h), "65, 3", "-5, 3", 1),
		strings.Replace(string(h), "65, 3", "065,3", 1), strings.Replace(string(h), "} ", "}x", 1), string(h[:100]),
	} {
		if _, err := snapshot.ReadHeader(strings.NewReader(bad)); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("header %.80q: %v, want %v", bad, err, snapshot.ErrCorrupt)
		}
	}
}

// FuzzHeader: whatever a file begins with, it is a header that this program writes, or damaged.
func FuzzHeader(f *testing.F) {
	for _, descr := range []string{"<f4", "|u1", "<u8"} {
		f.Add(snapshot.Header(descr, 1<<40, 7))
	}
	f.Add([]byte("\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		a, err := snapshot.ReadHeader(r)
		if err != nil {
			if !errors.Is(err, snapshot.ErrCorrupt) {
				t.Fatalf("%v, want %v", err, snapshot.ErrCorrupt)
			}
			return
		}
		descr, rows, width := a.Told()
		text := func(b []byte) string { return strings.TrimRight(string(b[10:]), " \n") }
		if got := data[:len(data)-r.Len()]; text(snapshot.Header(descr, rows, width)) != text(got) {
			t.Fatalf("%q is read as %q %d %d", got, descr, rows, width)
		}
	})
}

// FuzzManifest: whatever a manifest is, it is refused, or says the same when it is written again,
// and its numbers lead nowhere else.
func FuzzManifest(f *testing.F) {
	p := newPages(f, []kernels.Var{
		{Name: "round", Elem: kernels.U64, Width: 1, Group: true},
		{Name: "row", Elem: kernels.BF16, Width: 3},
	}, 5, 13, 768)
	store := open(f, f.TempDir())
	if _, _, err := snapshot.SaveFiles(f.Context(), store, head("s"), &p.Pages, fewBytes/2); err != nil {
		f.Fatalf("snapshot.SaveFiles: %v, want no error", err)
	}
	in, err := store.Open(f.Context(), "s/"+snapshot.ManifestName)
	testkit.NoError(f, "store.Open", err)
	good, err := io.ReadAll(in)
	if err = errors.Join(err, in.Close()); err != nil {
		f.Fatalf("joined errors: %v, want no error", err)
	}
	f.Add(good)
	for _, change := range [][2]string{
		{`"v": 1`, `"v": 2`},
		{`"groups": 13`, `"groups": 134217729`},
		{`"groups_per_file": 6`, `"groups_per_file": 0`},
		{`"agent"`, `"agents"`},
		{`"round"`, `"../round"`},
		{`"width": 3`, `"width": -3`},
		{`"name": "s"`, `"name": ".."`},
		{`"entry": 7`, `"entry": 0`},
		{`"bfloat16"`, `"float16"`},
		{`"cell"`, `"cells"`},
		{`"sha256": "`, `"sha256": "A`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if bad == string(good) {
			f.Fatalf("there is no %s in\n%s", change[0], good)
		}
		if _, err := snapshot.ParseManifest([]byte(bad)); !errors.Is(err, snapshot.ErrCorrupt) &&
			!errors.Is(err, snapshot.ErrMismatch) {
			f.Errorf("%s: %v, want %v or %v", change[1], err, snapshot.ErrCorrupt, snapshot.ErrMismatch)
		}
		f.Add([]byte(bad))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := snapshot.ParseManifest(data)
		if err != nil {
			if !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrMismatch) {
				t.Fatalf("%v, want %v or %v", err, snapshot.ErrCorrupt, snapshot.ErrMismatch)
			}
			return
		}
		for _, v := range m.Variables {
			rows := int64(0)
			for _, file := range v.Files {
				rows += file.Rows
				if file.Rows < 1 || file.Bytes < file.Rows || strings.ContainsAny(file.Name, "/\\") {
					t.Fatalf("%+v, want rows, at least as many bytes, and a name without slashes", file)
				}
			}
			if want := map[string]int64{"agent": m.Agents, "group": int64(m.Groups)}[v.Per]; rows != want {
				t.Fatalf("variable %s has %d rows of %d", v.Name, rows, want)
			}
		}
		again, err := json.Marshal(m)
		testkit.NoError(t, "json.Marshal", err)
		m2, err := snapshot.ParseManifest(again)
		if err != nil {
			t.Fatalf("a manifest that was read is not read again: %v: %s", err, again)
		}
		m.Spec, m2.Spec = nil, nil // its text is indented as it comes
		if d := cmp.Diff(m, m2); d != "" {
			t.Fatalf("difference (-want +got):\n%s", d)
		}
	})
}
