package expr_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var pageSources = []expr.Source{
	{Name: "x", Type: ir.F32, Width: 1},
	{Name: "h", Type: ir.F32, Width: 8},
	{Name: "b", Type: ir.BF16, Width: 3},
	{Name: "c", Type: ir.U32, Width: 3},
	{Name: "vote", Type: ir.U8, Width: 1},
	{Name: "round", Type: ir.U32, Width: 1},
	{Name: "i", Type: ir.I32, Width: 2},
	{Name: expr.AgentInput, Type: ir.U32, Width: 1},
	{Name: expr.GroupInput, Type: ir.U32, Width: 1},
}

// testPages are pages with random content. Some pages do not exist.
type testPages struct {
	l                    expr.PageLayout
	groups, pages, first int
	data                 [][]byte // by page; nil: it does not exist
}

// newPages lays the variables out: x, i and round by element, the others by unit.
func newPages(r *rand.Rand, agents, slots, groups int) *testPages {
	p := &testPages{groups: groups, pages: (groups + slots - 1) / slots, first: 7}
	p.l = expr.PageLayout{Agents: agents, Slots: slots, Vars: map[string]expr.PageVar{}}
	end := int64(0)
	for _, s := range pageSources[:7] {
		v := expr.PageVar{
			Off:   end,
			Bytes: int(s.Type.Bytes()),
			Group: s.Name == "round" || s.Name == "c",
			Vote:  s.Name == "vote",
		}
		if s.Name == "round" {
			v.Bytes = 8
		}
		units := int64(agents * slots)
		if v.Group {
			units = int64(slots)
		}
		if v.Unit, v.Elem = s.Width*int64(v.Bytes), int64(v.Bytes); s.Name == "i" {
			v.Unit, v.Elem = int64(v.Bytes), units*int64(v.Bytes)
		}
		p.l.Vars[s.Name] = v
		end = (end + units*s.Width*int64(v.Bytes) + 255) / 256 * 256
	}
	p.l.PageBytes = end
	for range p.pages {
		if r.IntN(5) == 0 {
			p.data = append(p.data, nil)
			continue
		}
		data := make([]byte, 0, end)
		for _, s := range pageSources[:7] {
			v := p.l.Vars[s.Name]
			data = append(data, make([]byte, v.Off-int64(len(data)))...)
			units := int64(agents * slots)
			if v.Group {
				units = int64(slots)
			}
			switch s.Name {
			case "vote":
				for range units {
					data = append(data, byte(r.IntN(5)))
				}
			case "round":
				for range units {
					data = append(data, device.Bytes([]uint64{uint64(1) << r.IntN(40)})...)
				}
			default:
				data = append(data, fill(r, s.Type, units*s.Width)...)
			}
		}
		p.data = append(p.data, append(data, make([]byte, end-int64(len(data)))...))
	}
	return p
}

// flat returns the variables of agents of a page as arrays, and their ballots.
func (p *testPages) flat(page, from, n int) (map[string]expr.Array, []byte) {
	data := p.data[page]
	if data == nil {
		data = make([]byte, p.l.PageBytes)
	}
	in, ballots := map[string]expr.Array{}, make([]byte, n)
	for _, s := range pageSources {
		var all []byte
		for i := from; i < from+n; i++ {
			agent := uint32((p.first+page*p.l.Slots)*p.l.Agents + i)
			v, found := p.l.Vars[s.Name]
			unit := int64(i)
			if v.Group {
				unit /= int64(p.l.Agents)
			}
			switch at := v.Off + unit*v.Unit; {
			case !found && s.Name == expr.GroupInput:
				all = append(all, device.Bytes([]uint32{agent / uint32(p.l.Agents)})...)
			case !found:
				all = append(all, device.Bytes([]uint32{agent})...)
			case v.Vote:
				ballots[i-from] = data[at]
				all = append(all, data[at]-1)
			case v.Bytes == 8:
				all = append(all,
					device.Bytes([]uint32{uint32(min(device.Of[uint64](data[at : at+8])[0], 1<<32-1))})...)
			default:
				for c := range s.Width {
					all = append(all, data[at+c*v.Elem:][:v.Bytes]...)
				}
			}
		}
		in[s.Name] = expr.Array{Data: append(make([]byte, 0, len(all)), all...), Rows: int64(n)}
	}
	return in, ballots
}

func (p *testPages) kernel(t *testing.T, d device.Device, s device.Stream, f *expr.Folds, votes int, group bool,
	each int,
) []expr.Partial {
	t.Helper()
	k, err := f.PageKernel(d, p.l, votes, group)
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(n int64) device.Buffer {
		b, err := d.Alloc(max(n, 8), "test")
		if err == nil {
			err = b.Fill(0, b.Size(), 0xff)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	nodes := max(votes, 1) * len(f.All)
	arena, state := alloc(p.l.PageBytes*int64(p.pages)), alloc(int64(nodes)*16*expr.PageBlocks*256)
	frames := make([]uint32, p.pages)
	for page, data := range p.data {
		frames[page] = expr.PageAbsent
		if data != nil {
			frames[page] = uint32(p.pages - 1 - page)
			if err := arena.Write(int64(frames[page])*p.l.PageBytes, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []expr.Partial
	if group {
		blocks := 256 / expr.PageThreads(p.l.Agents)
		for from := 0; from < p.groups; from += each {
			n := min(each, p.groups-from)
			out, table := alloc(int64(n*len(f.All))*16), alloc(int64(4*p.pages))
			first := from / p.l.Slots
			if err := table.Write(0, device.Bytes(frames[first:])); err != nil {
				t.Fatal(err)
			}
			launch(t, s, k, (n+blocks-1)/blocks, device.Ptr(arena), device.Ptr(table), device.Ptr(state),
				device.Ptr(out), device.Uint32(uint32(first)), device.Uint32(0),
				device.Uint32(uint32(p.groups)), device.Uint32(uint32(p.first)), device.Uint32(uint32(from)),
				device.Uint32(uint32(n)))
			all = append(all, partials(t, out, n*len(f.All))...)
		}
		return all
	}
	out := alloc(int64(nodes) * 16 * expr.PageBlocks)
	for from := 0; from < p.pages; from += each {
		n := min(each, p.pages-from)
		table := alloc(int64(4 * n))
		if err := table.Write(0, device.Bytes(frames[from:from+n])); err != nil {
			t.Fatal(err)
		}
		flags := uint32(0)
		if from > 0 {
			flags |= expr.PageResume
		}
		if from+n == p.pages {
			flags |= expr.PageFinish
		}
		launch(t, s, k, expr.PageBlocks, device.Ptr(arena), device.Ptr(table), device.Ptr(state), device.Ptr(out),
			device.Uint32(uint32(from)), device.Uint32(uint32(n)), device.Uint32(uint32(p.groups)),
			device.Uint32(uint32(p.first)), device.Uint32(flags), device.Uint32(0))
	}
	words := make([]uint64, nodes*2*expr.PageBlocks)
	if err := out.Read(0, device.Bytes(words)); err != nil {
		t.Fatal(err)
	}
	return f.FoldBlocks(words)
}

func launch(t *testing.T, s device.Stream, k device.Kernel, grid int, args ...device.Arg) {
	t.Helper()
	err := s.Launch(k, device.Geometry{Grid: grid, Block: 256}, args...)
	if err = errors.Join(err, s.Sync(context.Background())); err != nil {
		t.Fatal(err)
	}
}

func partials(t *testing.T, b device.Buffer, n int) []expr.Partial {
	t.Helper()
	words := make([]uint64, 2*n)
	if err := b.Read(0, device.Bytes(words)); err != nil {
		t.Fatal(err)
	}
	var all []expr.Partial
	for i := range n {
		all = append(all, expr.Partial{N: words[2*i], Bits: words[2*i+1]})
	}
	return all
}

func (p *testPages) host(t *testing.T, f *expr.Folds, votes int, group bool) []expr.Partial {
	t.Helper()
	sums := f.NewPageSums(p.l, votes, group)
	for page := range p.pages {
		n := min(p.l.Slots, p.groups-page*p.l.Slots) * p.l.Agents
		in, ballots := p.flat(page, 0, n)
		if err := sums.Add(t.Context(), page, n, in, ballots); err != nil {
			t.Fatal(err)
		}
	}
	return sums.Results()
}

// pageTexts are all folds of all types.
var pageTexts = []string{
	"mean(abs(h)) where vote == 1",
	"sum(x); min(x); max(x); count(x > 0); any(x > 1e30); all(isnan(x) || x == x)",
	"sum(i); lo = min(i) where i % 2 == 0; max(i) where x > 0; mean(i > 0); s = sum(round)",
	"sum(b * x) where c > 100; sum(c); max(b) where agent % 3 == 1; min(group); count(vote == 255)",
	"h2 := h * h + 1; sum(sqrt(h2)) where h2 > x; r = max(h); n = count(true)",
}

// named gives the outputs of a text names of their own.
func named(text string) string {
	var all []string
	for i, s := range strings.Split(text, ";") {
		if !strings.Contains(strings.ReplaceAll(s, "==", ""), "=") || strings.Contains(s, "(i > 0)") ||
			strings.Contains(s, ">=") {
			s = fmt.Sprintf("o%d = %s", i, s)
		}
		all = append(all, s)
	}
	return strings.Join(all, ";")
}

// TestPageKernels: the kernels over pages have the bits of the host, with all frames, whatever the
// pages of a launch.
func TestPageKernels(t *testing.T) {
	d, s := open(t)
	if *deviceName == "host" {
		t.Skip("no kernels on the host")
	}
	r := rand.New(rand.NewPCG(*seed, 24))
	for i, shape := range [][3]int{{64, 40, 200}, {33, 3, 8}, {1, 3000, 5000}, {700, 4, 15}, {5000, 2, 3}} {
		p := newPages(r, shape[0], shape[1], shape[2])
		text := named(pageTexts[i])
		for by, votes := range map[string]int{"": 0, " by vote": 4, " by group": 0} {
			// A launch of all blocks takes a second in the emulation.
			if *deviceName == "emulated" && !testkit.Long() && (by == " by vote" || i != 1) {
				continue
			}
			all := strings.Split(text, ";")
			for i := range all {
				if !strings.Contains(all[i], ":=") {
					all[i] += by
				}
			}
			f, err := expr.ParseFolds(strings.Join(all, ";"), []string{"vote", "group"}, pageSources...)
			if err != nil {
				t.Fatal(err)
			}
			group := by == " by group"
			want := p.host(t, f, votes, group)
			for _, parts := range []int{1, 2} {
				if *deviceName == "emulated" && !testkit.Long() && parts == 1 && by == "" {
					continue
				}
				each := (p.pages + parts - 1) / parts
				if group {
					each = (p.groups + parts - 1) / parts
				}
				if got := p.kernel(t, d, s, f, votes, group, each); !slices.Equal(got, want) {
					for k := range got {
						if got[k] != want[k] {
							t.Fatalf("%v%s, %q, fold %d of %d: %x, the host has %x", shape, by, text, k,
								len(got), got[k], want[k])
						}
					}
					t.Fatalf("%v%s: %d results, the host has %d", shape, by, len(got), len(want))
				}
			}
		}
	}
}

// TestWideRows: sums whose last bits depend on the order of agents equal the sums of the host,
// where agents have rows and where their elements follow one another.
func TestWideRows(t *testing.T) {
	d, s := open(t)
	if *deviceName == "host" {
		t.Skip("no kernels on the host")
	}
	r := rand.New(rand.NewPCG(*seed, 25))
	p := newPages(r, 64, 70, 130) // a page has a whole chunk and a part of one
	for page, data := range p.data {
		if data == nil {
			data = make([]byte, p.l.PageBytes)
			p.data[page] = data
		}
		for _, name := range []string{"x", "h"} {
			v := p.l.Vars[name]
			values := device.Of[float32](data[v.Off:][:int64(p.l.Agents*p.l.Slots)*v.Unit])
			for i := range values {
				values[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(80)-40)) // more bits than a float64 has
			}
		}
	}
	for _, text := range []string{"sum(h)", "sum(x)"} {
		f, err := expr.ParseFolds(text, []string{"vote", "group"}, pageSources...)
		if err != nil {
			t.Fatal(err)
		}
		want := p.host(t, f, 0, false)
		if got := p.kernel(t, d, s, f, 0, false, p.pages); !slices.Equal(got, want) {
			t.Errorf("%s: %x, the host has %x", text, got, want)
		}
	}
}
