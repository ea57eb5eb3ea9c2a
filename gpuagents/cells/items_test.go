package cells

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func asking(t *testing.T, hidden float64, features, rows, items int) *Addressed {
	t.Helper()
	a, err := Address("gru", map[string]float64{"hidden": hidden}, 8, features, 2, Voting{})
	if err == nil && rows > 0 {
		a, err = a.Embedding(rows)
	}
	if err == nil && items > 0 {
		a, err = a.Asking(items)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestItemTable: the readout by item is behind the table of the cell, in fixed point with a scale
// of its own, the vote is by the mean of the rows, and the embedding is last.
func TestItemTable(t *testing.T) {
	const H, I, P, rows, items = 3, 2, 8, 5, 6
	a := asking(t, H, I, rows, items)
	r := rand.New(rand.NewPCG(1, 2))
	w := drawn(func() float32 { return float32(r.NormFloat64()) }, H, I, items)
	for range rows * I {
		w.Embed = append(w.Embed, float32(r.NormFloat64()))
	}
	table, err := a.Table(w)
	with, without := a.TableWords()
	if err != nil || len(table) != with || without != kernels.AgentGRUTable(P)+kernels.AgentItemsTable(items, P) {
		t.Fatalf("%d words, want %d: %v", len(table), with, err)
	}
	if got := device.Of[float32](device.Bytes(table[without:])); !slices.Equal(got, w.Embed) {
		t.Errorf("embedding %v, want %v", got, w.Embed)
	}
	own := table[kernels.AgentGRUTable(P):without]
	most := slices.Max(w.Readout)
	most = max(most, -slices.Min(w.Readout))
	scale := int(math.Floor(math.Log2(kernels.AgentVoteWeight / float64(most))))
	if one := kernels.Logistic(scale + 6); math.Float32frombits(own[0]) != one[0] {
		t.Errorf("coefficient %v, want %v of scale %d", math.Float32frombits(own[0]), one[0], scale)
	}
	numbers, biases := int16s(own[kernels.AgentItemsReadout(items):]), int32s(own[kernels.AgentItemsBias:])
	for k := range items {
		if want := math.RoundToEven(math.Ldexp(float64(w.ReadoutBias[k]), scale+6)); float64(biases[k]) != want {
			t.Errorf("bias of item %d is %d, want %v", k, biases[k], want)
		}
		for j := range P {
			want := 0.0
			if j < H {
				want = math.RoundToEven(math.Ldexp(float64(w.Readout[k*H+j]), scale))
			}
			if got := numbers[k*P+j]; float64(got) != want {
				t.Errorf("weight %d of item %d is %d, want %v", j, k, got, want)
			}
		}
	}

	// The vote is of a cell without items, whose readout is zeros and the means, up to the rounding
	// of these to float32.
	plain := w
	plain.Embed, plain.Readout, plain.ReadoutBias = nil, make([]float32, 2*H), make([]float32, 2)
	for j := range H {
		sum := 0.0
		for k := range items {
			sum += float64(w.Readout[k*H+j])
		}
		plain.Readout[H+j] = float32(sum / items)
	}
	sum := 0.0
	for _, b := range w.ReadoutBias {
		sum += float64(b)
	}
	plain.ReadoutBias[1] = float32(sum / items)
	want, err := asking(t, H, I, 0, 0).Table(plain)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range int32s(table[kernels.AgentTableReadoutBias(P):][:2]) {
		if d := v - int32(want[kernels.AgentTableReadoutBias(P)+i]); d > 1 || d < -1 {
			t.Errorf("bias of candidate %d is %d off", i, d)
		}
	}
	at := kernels.AgentTableReadout(P)
	if !slices.Equal(table[:kernels.AgentTableBias+4*P], want[:kernels.AgentTableBias+4*P]) {
		t.Error("other biases of gates")
	}
	for i, v := range int16s(table[at:][:P]) {
		if d := int(v) - int(int16s(want[at:])[i]); d > 1 || d < -1 {
			t.Errorf("weight %d of the vote is %d off", i, d)
		}
	}
}

// TestLookUp: a number is the row of the embedding, in the table or drawn, and what is no number of
// a row has features of NaN.
func TestLookUp(t *testing.T) {
	const I, rows = 4, 7
	a := asking(t, 8, I, rows, 0)
	random := a.Weights(3)
	if with, without := a.TableWords(); len(random) != without || with != without+rows*I {
		t.Fatalf("%d words, of %d or %d", len(random), with, without)
	}
	drawn := a.LookUp(nil, []float32{0, 6, 6, 1}, random, 3)
	if len(drawn) != 4*I || slices.Equal(drawn[:I], drawn[I:2*I]) || !slices.Equal(drawn[I:2*I], drawn[2*I:3*I]) {
		t.Errorf("rows %v", drawn)
	}
	if other := a.LookUp(nil, []float32{0}, random, 4); slices.Equal(other, drawn[:I]) {
		t.Error("the seed changes no row")
	}
	own := slices.Clone(random)
	for i := range rows * I {
		own = append(own, math.Float32bits(float32(i)))
	}
	if got := a.LookUp(nil, []float32{2, 0}, own, 3); !slices.Equal(got, []float32{8, 9, 10, 11, 0, 1, 2, 3}) {
		t.Errorf("rows %v", got)
	}
	for _, v := range []float32{-1, rows, 0.5, 1e9, -1e30, float32(math.NaN()), float32(math.Inf(1))} {
		for _, x := range a.LookUp(nil, []float32{v}, own, 3) {
			if x == x {
				t.Errorf("number %v has the feature %v, want NaN", v, x)
			}
		}
	}
	if minus := float32(math.Copysign(0, -1)); !a.Numbered(minus) {
		t.Error("-0 is no number")
	}
}

// TestItemsRefused: cells that have no embedding or items, and sizes out of range.
func TestItemsRefused(t *testing.T) {
	a := asking(t, 8, 2, 0, 0)
	three, err := Address("gru", nil, 8, 2, 3, Voting{})
	if err != nil {
		t.Fatal(err)
	}
	leaky, err := Address("leaky", nil, 8, 1, 2, Voting{})
	if err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func() (*Addressed, error){
		"no rows":          func() (*Addressed, error) { return a.Embedding(0) },
		"too many rows":    func() (*Addressed, error) { return a.Embedding(kernels.AgentMostRows + 1) },
		"rows of leaky":    func() (*Addressed, error) { return leaky.Embedding(5) },
		"no items":         func() (*Addressed, error) { return a.Asking(0) },
		"too many items":   func() (*Addressed, error) { return a.Asking(kernels.AgentMostItems + 1) },
		"items of leaky":   func() (*Addressed, error) { return leaky.Asking(5) },
		"three candidates": func() (*Addressed, error) { return three.Asking(5) },
	} {
		if _, err := make(); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: %v, want ErrParameter", name, err)
		}
	}
	w := drawn(func() float32 { return 0.5 }, 8, 2, 5)
	if _, err := asking(t, 8, 2, 3, 5).Table(w); !errors.Is(err, ErrParameter) {
		t.Errorf("a table without an embedding: %v, want ErrParameter", err)
	}
}
