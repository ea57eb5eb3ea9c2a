package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestSVG: lines go through their counts, at the scale of the marks.
func TestSVG(t *testing.T) {
	c := Chart{
		Title: "a < b", Names: []string{"up", "down"}, Ticks: []int{0, 1, 2},
		Count: [][]uint64{{0, 100}, {50, 50}, {100, 0}},
	}
	got, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a &lt; b", `d="M90.0 370.0L400.0 210.0L710.0 50.0" fill="none" stroke="#0072B2"`,
		`d="M90.0 50.0L400.0 210.0L710.0 370.0" fill="none" stroke="#D55E00"`, `text-anchor="end">100<`, `y="62">up<`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(got)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

// TestMarks: they are round and few.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		want     []float64
	}{
		{0, 1, []float64{0, 1}},
		{1, 30, []float64{5, 10, 15, 20, 25, 30}},
		{0, 100_000, []float64{0, 20_000, 40_000, 60_000, 80_000, 100_000}},
	} {
		if got := marks(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("%v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// TestInvalid: counts that do not fit their names and ticks are refused.
func TestInvalidChart(t *testing.T) {
	for _, c := range []Chart{
		{},
		{Names: []string{"a"}},
		{Names: []string{"a"}, Ticks: []int{1}},
		{Names: []string{"a"}, Ticks: []int{1}, Count: [][]uint64{{1, 2}}},
		{Names: make([]string, MaxLines+1), Ticks: []int{1}, Count: [][]uint64{make([]uint64, MaxLines+1)}},
	} {
		if _, err := c.SVG(); !errors.Is(err, ErrChart) {
			t.Errorf("%+v: %v, want an ErrInvalid", c, err)
		}
	}
}

// TestAxis: the axis has the name that the chart gives it, escaped, and ticks without one.
func TestAxis(t *testing.T) {
	for axis, want := range map[string]string{"": ">tick<", "cores & flows": ">cores &amp; flows<"} {
		c := &Chart{Names: []string{"a"}, Axis: axis, Ticks: []int{1, 2}, Count: [][]uint64{{1}, {2}}}
		svg, err := c.SVG()
		if err != nil || !strings.Contains(svg, want) {
			t.Errorf("axis %q: %v, want %q in\n%s", axis, err, want, svg)
		}
	}
}
