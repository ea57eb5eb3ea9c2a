package batch

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

// drawTelemetry draws observations as sources make them: series with steps of time, texts of the
// times, and decimal numbers; now and then a row breaks the rule.
func drawTelemetry(t *rapid.T) *Observations {
	n, groups := rapid.IntRange(1, 700).Draw(t, "rows"), rapid.IntRange(1, 30).Draw(t, "groups")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	layout := rapid.SampledFrom([]string{
		"2006-01-02 15:04:05", "2006-01-02T15:04:05Z", time.RFC3339Nano, "2006-01-02 15:04:05.000", time.Kitchen,
	}).Draw(t, "layout")
	places := math.Pow(10, float64(rapid.IntRange(0, 14).Draw(t, "places")))
	o := &Observations{Width: rapid.IntRange(1, 3).Draw(t, "width")}
	rounded := rapid.Bool().Draw(t, "rounded")
	for i := range n {
		o.Group = append(o.Group, uint32(r.IntN(groups)))
		o.Row = append(o.Row, uint64(i/groups))
		at := time.Unix(1_700_000_000+300*int64(i/groups), 0).UTC()
		if r.IntN(100) == 0 {
			at = time.Unix(r.Int64N(1<<40)-1<<39, r.Int64N(1e9)).UTC()
		}
		o.Time, o.Timestamp = append(o.Time, at.UnixNano()), append(o.Timestamp, at.Format(layout))
		o.Read = append(o.Read, int64(i)*1000+r.Int64N(300))
		for range o.Width {
			v := math.Round(r.NormFloat64()*1000*places) / places
			if r.IntN(1000) == 0 {
				v = math.Float64frombits(r.Uint64())
			}
			f := float32(v)
			if !rounded {
				f = float32(v * 2)
			}
			o.Value, o.Features = append(o.Value, v), append(o.Features, f)
		}
	}
	return o
}

func same32(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// samePacked packs observations, and compares what is decoded with them.
func samePacked(t *rapid.T, want *Observations) {
	data, err := want.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeObservations(data)
	if err != nil {
		t.Fatal(err)
	}
	// The comparison of package cmp is slow and says what differs.
	equal := want.Width == got.Width && slices.Equal(want.Group, got.Group) && slices.Equal(want.Row, got.Row) &&
		slices.Equal(want.Time, got.Time) && slices.Equal(want.Read, got.Read) &&
		slices.Equal(want.Timestamp, got.Timestamp) && slices.EqualFunc(want.Value, got.Value, same) &&
		slices.EqualFunc(want.Features, got.Features, same32)
	if !equal {
		t.Fatal(gocmp.Diff(want, got, gocmp.Comparer(same), gocmp.Comparer(same32), cmpopts.EquateEmpty()))
	}
	if isPacked(data) && MemoryOf(data) < 52*want.Len() {
		t.Fatalf("%d rows need %d bytes", want.Len(), MemoryOf(data))
	}
}

// Packed observations are decoded to the bit, whatever they hold.
func TestPackedRoundTrip(t *testing.T) {
	t.Run("any", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { samePacked(t, drawObservations(t)) })
	})
	t.Run("telemetry", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { samePacked(t, drawTelemetry(t)) })
	})
}

// Packed observations of agents are decoded to the bit, whatever they hold.
func TestPackedAgents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n, most := rapid.IntRange(0, 2000).Draw(t, "rows"), rapid.Uint32Range(1, math.MaxUint32).Draw(t, "agents")
		want := &AgentObservations{Width: rapid.IntRange(1, 4).Draw(t, "width")}
		kind, asks := rapid.IntRange(0, 2).Draw(t, "kind"), rapid.Bool().Draw(t, "items")
		for range n {
			if asks {
				want.Item = append(want.Item, int32(r.Uint32())>>r.IntN(31))
			}
			want.Agent = append(want.Agent, r.Uint32N(most))
			for range want.Width {
				f := math.Float32frombits(r.Uint32())
				switch kind {
				case 1:
					f = r.Float32()
				case 2:
					f = float32(r.IntN(1000)) / 100
				}
				want.Features = append(want.Features, f)
			}
		}
		data, err := want.Pack()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeAgentObservations(data)
		if err != nil {
			t.Fatal(err)
		}
		if want.Width != got.Width || !slices.Equal(want.Agent, got.Agent) ||
			!slices.EqualFunc(want.Features, got.Features, same32) || !slices.Equal(want.Item, got.Item) {
			t.Fatal(gocmp.Diff(want, got, gocmp.Comparer(same32), cmpopts.EquateEmpty()))
		}
	})
}

// A packed batch that is cut or changed is refused or decoded to as many rows as its header says,
// and never more than MemoryOf says.
func TestPackedDamaged(t *testing.T) {
	o := telemetryRuns(t, 90, 16)
	data, err := o.Pack()
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, data []byte) {
		t.Helper()
		_, err := DecodeObservations(data)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid {
			t.Fatalf("%s: %v, want an error of class %s", what, err, jobs.CodeInvalid)
		}
	}
	for n := range data {
		if n >= len(packedMagic) {
			refuse("cut", data[:n])
		}
	}
	refuse("longer", append(data[:len(data):len(data)], 0))
	if _, err := DecodeAgentObservations(data); err == nil {
		t.Error("a batch of groups is one of agents")
	}
	for i := range data {
		for bit := range 8 {
			bad := append([]byte(nil), data...)
			bad[i] ^= 1 << bit
			if got, err := DecodeObservations(bad); err == nil && got.Len() != 90 && (i < 8 || i >= 12) {
				t.Fatalf("bit %d of byte %d: %d rows", bit, i, got.Len())
			}
		}
	}
	later := append([]byte(nil), data...)
	later[7]++
	var e *jobs.Error
	if _, err := DecodeObservations(later); !errors.As(err, &e) || e.Code != jobs.CodeVersion {
		t.Errorf("version %d: %v", later[7], err)
	}
	// 40 bytes that ask for more than a batch may have.
	h := packedHead{kind: packedGroups, rows: maxPackedRows, width: 60, values: 60}
	bomb := append(h.append(nil), make([]byte, 20)...)
	refuse("bomb", bomb)
	if MemoryOf(bomb) != len(bomb) {
		t.Errorf("a refused batch needs %d bytes", MemoryOf(bomb))
	}
}

// A batch without a packed form is an Arrow IPC stream.
func TestPackFallsBack(t *testing.T) {
	none := &Observations{Width: 1}
	wide := &Observations{Width: 1}
	for i := range maxPackedRows + 1 {
		wide.Group, wide.Row = append(wide.Group, uint32(i)), append(wide.Row, 1)
		wide.Time, wide.Read = append(wide.Time, 0), append(wide.Read, 0)
		wide.Timestamp, wide.Value = append(wide.Timestamp, ""), append(wide.Value, 0)
		wide.Features = append(wide.Features, 0)
	}
	for _, o := range []*Observations{none, wide} {
		data, err := o.Pack()
		if err != nil || isPacked(data) {
			t.Fatalf("%d rows: packed %v, %v", o.Len(), isPacked(data), err)
		}
		got, err := DecodeObservations(data)
		if err != nil || got.Len() != o.Len() {
			t.Errorf("%d rows: %v", o.Len(), err)
		}
	}
	uneven := &Observations{Width: 2, Group: []uint32{1}, Features: []float32{1}}
	if _, err := uneven.Pack(); err == nil || !strings.Contains(err.Error(), "1 features for 1 rows of width 2") {
		t.Errorf("uneven: %v", err)
	}
}

// Rows in the order of groups are sorted as by a stable sort.
func TestSortByGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]uint32{1, 5, 5000, 1 << 23, math.MaxUint32}).Draw(t, "most")
		groups := rapid.SliceOfN(rapid.Uint32Range(0, most), 1, 300).Draw(t, "groups")
		want := make(permutation, len(groups))
		for i := range want {
			want[i] = uint32(i)
		}
		slices.SortStableFunc(want, func(a, b uint32) int { return cmp.Compare(groups[a], groups[b]) })
		if got := sortByGroup(groups); !slices.Equal(got, want) {
			t.Fatalf("%v are in the order %v, want %v", groups, got, want)
		}
	})
}

// Files of version 1 are read, and the writer of today makes the same bytes of the same rows. A
// change of the writer alone may write them again with -update.
func TestPackedVersion1(t *testing.T) {
	for name, o := range map[string]interface{ Pack() ([]byte, error) }{
		"runs.rows": telemetryRuns(t, 600, 16), "turns.rows": telemetryInterleaved(t, 600),
		"fleet.rows": fleet(50, 300, true), "agents.rows": currents(1000, 300, false),
	} {
		path := filepath.Join("testdata", "v1", name)
		data, err := o.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if name == "agents.rows" {
			got, err = DecodeAgentObservations(stored)
		} else {
			got, err = DecodeObservations(stored)
		}
		if d := gocmp.Diff(any(o), got, gocmp.Comparer(same), gocmp.Comparer(same32)); err != nil || d != "" {
			t.Errorf("%s: %v: %s", name, err, d)
		}
		if !bytes.Equal(data, stored) {
			t.Errorf("%s: the writer makes other bytes", name)
		}
	}
}

var update = flag.Bool("update", false, "write the files of TestPackedVersion1")

// FuzzPacked decodes any bytes behind the magic of a packed batch: no panic, and no more memory
// than MemoryOf says.
func FuzzPacked(f *testing.F) {
	for _, o := range []*Observations{telemetryRuns(f, 300, 16), telemetryInterleaved(f, 300)} {
		data, err := o.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	agents, err := (&AgentObservations{Agent: []uint32{7, 1}, Features: []float32{1, 2}, Width: 1}).Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(agents)
	if agents, err = (&AgentObservations{
		Agent: []uint32{7, 1}, Features: []float32{1, 2}, Width: 1, Item: []int32{5, -1},
	}).Pack(); err != nil {
		f.Fatal(err)
	}
	f.Add(agents)
	f.Fuzz(func(t *testing.T, data []byte) {
		data = append([]byte(packedMagic), data[min(len(data), len(packedMagic)):]...)
		if o, err := DecodeObservations(data); err == nil {
			if n := o.Len(); len(o.Row) != n || len(o.Time) != n || len(o.Read) != n || len(o.Timestamp) != n ||
				len(o.Features) != n*o.Width || n*44+textBytes(o.Timestamp) > MemoryOf(data) {
				t.Fatalf("%d rows of %d features in %d bytes", n, o.Width, MemoryOf(data))
			}
			again, err := o.Pack()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := DecodeObservations(again); err != nil {
				t.Fatal(err)
			}
		}
		if o, err := DecodeAgentObservations(data); err == nil && (len(o.Features) != len(o.Agent)*o.Width ||
			o.Item != nil && len(o.Item) != len(o.Agent)) {
			t.Fatalf("%d features and %d items of %d agents", len(o.Features), len(o.Item), len(o.Agent))
		}
	})
}
