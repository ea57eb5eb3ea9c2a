package expr_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

func vector(v ...float32) expr.Array { return expr.Array{Data: device.Bytes(v), Rows: int64(len(v))} }

// sourcesOf are arrays of two elements, and a matrix.
var sourcesOf = []expr.Source{
	{Name: "x", Type: ir.F32, Rows: 2},
	{Name: "i", Type: ir.I32, Rows: 2},
	{Name: "u", Type: ir.U8, Rows: 2},
	{Name: "b", Type: ir.Bool, Rows: 2},
	{Name: "m", Type: ir.F32, Rows: 2, Width: 3},
	{Name: "a", Type: ir.F32, Scalar: true},
	{Name: "c", Type: ir.F32, Rows: 1, Width: 1},
	{Name: "w", Type: ir.F32, Rows: 3, Width: 2},
}

// TestParse: precedence, numbers without a type, and conditions.
func TestParse(t *testing.T) {
	in := map[string]expr.Array{
		"x": vector(2,
			-3), "a": expr.Scalar(10), "m": {Data: device.Bytes([]float32{1, 2, 3, 4, 5, 6}), Rows: 2},
		"i": {Data: device.Bytes([]int32{7, -8}), Rows: 2}, "u": {Data: []byte{200, 3}, Rows: 2},
		"b": {Data: []byte{1, 0}, Rows: 2}, "": {Rows: 2},
	}
	for text, want := range map[string][]float32{
		"1 + x * 2":                           {5, -5},
		"(1 + x) * 2":                         {6, -4},
		"x - 1 - 1":                           {0, -5},
		"-x * -a":                             {20, -30},
		"1 / 2 * x":                           {1, -1.5},
		"x * 1e1 + .5":                        {20.5, -29.5},
		"f32(i / 2)":                          {3, -4},
		"f32(i % 4)":                          {3, 0},
		"f32(i >> 1)":                         {3, -4},
		"f32(i & 0x0F)":                       {7, 8},
		"f32(u + 100)":                        {44, 103}, // wraps
		"f32(u << 1 | 1)":                     {145, 7},
		"f32(u / 0)":                          {0, 0},
		"f32(x > 0 && i == 7)":                {1, 0},
		"f32(!(x > 0) || b)":                  {1, 1},
		"select(x > 0, x, 0 - 1)":             {2, -1},
		"min(x, 0)":                           {0, -3},
		"clamp(x, -1, 1)":                     {1, -1},
		"row_sum(m)":                          {6, 15},
		"x + row_max(m)":                      {5, 3},
		"sum(m)":                              {21},
		"mean(m) where x > 0":                 {2},
		"mean(x) where i < 0":                 {-3},
		"min(x)":                              {-3},
		"f32(count(x > 0))":                   {1},
		"y := x * x; y + 1":                   {5, 10},
		"sum(x) where b":                      {2},
		"max(x) where x < -100":               {float32(math.Inf(-1))},
		"dot(x, x)":                           {13},
		"f32(u8(x))":                          {2, 0},
		"f32(u32(300.7 + x))":                 {302, 297},
		"f32(^i)":                             {-8, 7},
		"cumsum(x)":                           {2, -1},
		"gather(x, 1 - i)":                    {2, -3},
		"filter(x, x < 0)":                    {-3},
		"len(m)":                              {6},
		"pi * 0 + x":                          {2, -3},
		"floor(x / 4) ; ;":                    {0, -1},
		"square(x) + relu(x)":                 {6, 9},
		"x + f32(index())":                    {2, -2},
		"f32(random(1, 2) == random(1, 2))":   {1, 1},
		"f32(uniform(5) < 1)+f32(isnan(x/0))": {1, 1},
	} {
		p, err := expr.Parse(text, sourcesOf...)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := expr.Interpret(t.Context(), p, in)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := device.Of[float32](out["out"].Data); !slices.Equal(got, want) {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
	}
}

// TestParseErrors: the place of an error, and limits.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "column 1: the text is empty",
		"x +":                           "column 4: expected a value, found the end",
		"x y":                           `column 3: expected an operator or the end, found "y"`,
		"x $ y":                         "column 3: unexpected",
		"1.2.3":                         "column 1: ",
		"sum(x":                         `column 6: expected "," or ")"`,
		"sum()":                         "column 1: sum has 1 arguments",
		"x + i":                         "column 3: + of f32 and i32",
		"i + 0.5":                       "column 3: 0.5 is no i32",
		"u + 256":                       "256 is no u8",
		"b + b":                         "column 3: + of bool",
		"x && b":                        "column 3: && of f32",
		"b && 1":                        "column 3: a number is no bool",
		"x = 1; x = 2":                  "another of this name",
		"y := x":                        "column 7: the text has no output",
		"z":                             `column 1: there is no array "z"`,
		"matmul(m, m)":                  "matmul",
		"x + filter(x, b)":              "the lengths of",
		"softmax(a)":                    "fold of rows",
		"random(x)":                     "whole numbers",
		"sum(x) by i":                   "only swarms",
		"x where":                       "column 8: expected a value",
		strings.Repeat("(", 500) + "x":  "more than 200 levels",
		strings.Repeat("-", 500) + "x":  "more than 200 levels",
		strings.Repeat(" ", 70_000):     "at most 65536",
		strings.Repeat("x+", 9000) + "": "too many operators",
	} {
		_, err := expr.Parse(text, sourcesOf...)
		var syntax *expr.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v; want a SyntaxError with %q", text, err, want)
		}
	}
	if _, err := expr.Parse(strings.Repeat("(", 500), sourcesOf...); !errors.Is(err, expr.ErrLimit) {
		t.Errorf("too deep: %v, want ErrLimit", err)
	}
	p, err := expr.Parse("x + m", sourcesOf...)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []map[string]expr.Array{
		{},
		{"x": vector(1, 2)},
		{"x": vector(1, 2), "m": {Data: make([]byte, 23), Rows: 2}},
		{"x": vector(1), "m": {Data: make([]byte, 24), Rows: 2}},
		{"x": {Rows: -1}, "m": {Rows: -1}},
		{"x": {Rows: 1 << 62}, "m": {Rows: 1 << 62}},
	} {
		if _, err := expr.Interpret(t.Context(), p, in); !errors.Is(err, expr.ErrArgs) {
			t.Errorf("%v: %v, want ErrArgs", in, err)
		}
	}
}

// FuzzParse: no text makes the parser panic, and what it accepts is interpreted.
func FuzzParse(f *testing.F) {
	f.Add("y := x*2; z = sum(y) where i > 0; filter(x, b)")
	f.Add("softmax(m) + gather(x, i) * cumsum(x)")
	f.Add("((x)) - -1.5e3 / 0x1F << 2 & ^u")
	f.Add("matmul(m, m); chain(m, m); normalize(m, 1)")
	f.Add("l := mean(square(x * c - m)); grad(l, c); g = grad(l, x); h = col_sum(m * m)")
	f.Add("grad(sum(gather(x, i) * row_max(m)), x); grad(sum(matmul(m, w)), w)")
	x, m, w := vector(1, 2), vector(1, 2, 3, 4, 5, 6), vector(1, 2, 3, 4, 5, 6)
	m.Rows, w.Rows = 2, 3
	f.Fuzz(func(t *testing.T, text string) {
		p, err := expr.Parse(text, sourcesOf...)
		if err != nil {
			return
		}
		_, err = expr.Interpret(t.Context(), p, map[string]expr.Array{
			"x": x, "m": m, "a": expr.Scalar(3), "i": {Data: make([]byte, 8), Rows: 2},
			"u": {Data: []byte{1, 2}, Rows: 2},
			"b": {Data: []byte{1, 0}, Rows: 2}, "c": vector(2), "w": w,
		})
		if err != nil && !errors.Is(err, expr.ErrArgs) { // w has other rows than x
			t.Errorf("%q: %v", text, err)
		}
	})
}

// TestAlias: outputs may be in the memory of inputs, also where other elements are still needed.
func TestAlias(t *testing.T) {
	d, s := open(t)
	for text, want := range map[string][]float32{
		"x + 1":                    {2, 3, 4, 5},
		"gather(x, 3 - i)":         {4, 3, 2, 1},
		"cumsum(x)":                {1, 3, 6, 10},
		"y := x * 2; y - mean(x)":  {-0.5, 1.5, 3.5, 5.5},
		"filter(x, x > 1); x * 10": nil,
	} {
		if want == nil {
			text = "x * 10; z = sum(x)"
			want = []float32{10, 20, 30, 40}
		}
		p, err := expr.Parse(text, expr.Source{Name: "x", Type: ir.F32, Rows: 4},
			expr.Source{Name: "i", Type: ir.I32, Rows: 4})
		if err != nil {
			t.Fatal(err)
		}
		k, err := expr.Compile(d, p, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := device.From(d, []float32{1, 2, 3, 4}, "test")
		if err != nil {
			t.Fatal(err)
		}
		i, err := device.From(d, []int32{0, 1, 2, 3}, "test")
		if err != nil {
			t.Fatal(err)
		}
		out, err := k.Run(context.Background(), s,
			map[string]expr.Memory{"x": {Buffer: x.Buffer, Rows: 4}, "i": {Buffer: i.Buffer, Rows: 4}},
			map[string]expr.Memory{"out": {Buffer: x.Buffer}})
		must(t, err)
		must(t, s.Sync(context.Background()))
		got, err := x.All()
		must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if z, found := out["z"]; found {
			must(t, z.Buffer.Close())
		}
		must(t, errors.Join(x.Close(), i.Close()))
	}
}

// TestSplit: a program gives the same bits as two programs, when the result of the first one is an
// input of the second one.
func TestSplit(t *testing.T) {
	x := vector(make([]float32, 50_000)...)
	for i := range device.Of[float32](x.Data) {
		device.Of[float32](x.Data)[i] = float32(math.Sin(float64(i)))
	}
	whole := interpret(t, "sum(sqrt(exp(x) * x * x))", map[string]expr.Array{"x": x})
	first := interpret(t, "exp(x) * x", map[string]expr.Array{"x": x})
	second := interpret(t, "sum(sqrt(y * x))", map[string]expr.Array{"x": x, "y": first})
	if !bytes.Equal(whole.Data, second.Data) {
		t.Errorf("%x in one piece, %x in two", whole.Data, second.Data)
	}
}

func interpret(t *testing.T, text string, in map[string]expr.Array) expr.Array {
	t.Helper()
	var sources []expr.Source
	for name, a := range in {
		sources = append(sources, expr.Source{Name: name, Type: ir.F32, Rows: a.Rows})
	}
	p, err := expr.Parse(text, sources...)
	must(t, err)
	out, err := expr.Interpret(t.Context(), p, in)
	must(t, err)
	return out["out"]
}
