package labelled

import (
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestPlants: the plants that are held back are the ones that docs/quality.md names, every plant has
// documentation and 4 to 10 sensors, and every kind of fault has a plant of both sorts or is named
// here.
func TestPlants(t *testing.T) {
	heldBack := []string{}
	for _, p := range Plants() {
		if p.HeldBack {
			heldBack = append(heldBack, p.Name)
		}
		for _, name := range p.faults {
			if k := lookupFault(name); k == nil || k.sensor {
				t.Errorf("%s: no fault of a process has the name %q", p.Name, name)
			}
		}
		s, err := MakePlant(1, Pair{p.Name, "sensor-drift"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Features(); n < 4 || n > 10 || p.Doc == "" || !slices.IsSorted(p.faults) {
			t.Errorf("%s: %d sensors, faults %v", p.Name, n, p.faults)
		}
	}
	want := []string{"boiler", "exchanger", "heater-loop", "pumps-duty", "valve-loop"}
	if !slices.Equal(heldBack, want) {
		t.Errorf("held back: %v, want %v", heldBack, want)
	}
	if got := quality.Probation(PlantRows); got != PlantWarmup {
		t.Errorf("a probation of %d rows, and a warm-up of %d", got, PlantWarmup)
	}
	for _, k := range PlantFaults() {
		of := map[bool]int{}
		for _, p := range Plants() {
			if k.fits(p) {
				of[p.HeldBack]++
			}
		}
		if only := k.Name == "slow-phase"; k.Doc == "" || of[false] == 0 || of[true] == 0 && !only {
			t.Errorf("%s: plants by held back: %v", k.Name, of)
		}
	}
}

// TestPlantLabels: all readings are finite; a window begins behind the warm-up with a row that
// differs from the usual one; rows before it do not differ, and rows far behind it do not where the
// plant settles.
func TestPlantLabels(t *testing.T) {
	for _, p := range PlantPairs() {
		plant := lookupPlant(p.Family)
		for n := range testkit.Of(10, 1) {
			s, k, err := makePlant(1, p, n)
			if err != nil {
				t.Fatal(err)
			}
			columns := append([][]float64{s.Values}, s.More...)
			differs := func(row int) bool {
				for f, column := range columns {
					if column[row] != k.usual[f][row] {
						return true
					}
				}
				return false
			}
			before := PlantWarmup + 99
			for _, w := range s.Windows {
				if w.First <= before || w.Last < w.First+20 || w.Last >= PlantRows {
					t.Errorf("%s: windows %v", s.Name, s.Windows)
				}
				if !differs(w.First) || !differs(w.Last) {
					t.Errorf("%s: window %v begins or ends with a usual row", s.Name, w)
				}
				before = w.Last
			}
			for row := range PlantWarmup + 100 {
				if differs(row) {
					t.Fatalf("%s: row %d differs before all faults", s.Name, row)
				}
			}
			for f, column := range columns {
				if len(column) != PlantRows {
					t.Fatalf("%s: %d rows", s.Name, len(column))
				}
				off := math.Abs(column[PlantRows-1] - k.usual[f][PlantRows-1])
				if plant.settle > 0 && off > 3*k.raw[f].noise+0.2*k.raw[f].span() {
					t.Errorf("%s: sensor %d has not returned to normal", s.Name, f)
				}
				for _, v := range column {
					if v-v != 0 {
						t.Fatalf("%s: a reading is not finite", s.Name)
					}
				}
			}
		}
	}
}

// TestPlantBytes pins a checksum: the same seed makes the same bits on all machines, another seed
// makes others.
func TestPlantBytes(t *testing.T) {
	h := fnv.New64a()
	for _, p := range PlantPairs() {
		s, err := MakePlant(7, p, 3)
		if err != nil {
			t.Fatal(err)
		}
		other, err := MakePlant(8, p, 3)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(s.Values, other.Values) {
			t.Errorf("%s: another seed makes the same values", s.Name)
		}
		for _, v := range s.Flat() {
			bits := math.Float32bits(v)
			h.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
		}
		for _, w := range s.Windows {
			h.Write([]byte{byte(w.First), byte(w.First >> 8), byte(w.Last), byte(w.Last >> 8)})
		}
	}
	const want = 0xd520371d19f7259d
	if got := h.Sum64(); got != want {
		t.Errorf("checksum %#x, want %#x", got, uint64(want))
	}
}

func TestUnknownPlant(t *testing.T) {
	for _, p := range []Pair{{"no-plant", "leak"}, {"pump", "no-fault"}, {"pump", "slow-phase"}} {
		if _, err := MakePlant(1, p, 0); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v: %v", p, err)
		}
	}
}
