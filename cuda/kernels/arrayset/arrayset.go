// Package arrayset has the kernels that reduce, count and sort arrays. Importing it adds them to
// the set of package kernels. Package arrays is their Go API, and cuda/host/twins has their twins.
//
// A launch works on spans, which are parts of one or many arrays in one buffer, so that one launch
// serves many small arrays as well as one large one.
package arrayset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Element is the type of the elements of an array.
type Element string

// The types of elements.
const (
	F32 Element = "f32"
	F64 Element = "f64"
	I32 Element = "i32"
	I64 Element = "i64"
	U32 Element = "u32"
	U64 Element = "u64"
)

// Elements lists all types. It must not be changed.
var Elements = []Element{F32, F64, I32, I64, U32, U64}

// Bytes returns the size of an element in bytes.
func (e Element) Bytes() int64 {
	if e.Wide() {
		return 8
	}
	return 4
}

// Wide reports whether an element, and so its key, has 64 bits.
func (e Element) Wide() bool { return strings.HasSuffix(string(e), "64") }

// Float reports whether the elements are floats.
func (e Element) Float() bool { return e[0] == 'f' }

// KeyBits returns the suffix of the kernels that work on keys of the type.
func (e Element) KeyBits() string {
	if e.Wide() {
		return "64"
	}
	return "32"
}

// Sizes that kernels and their callers agree on.
const (
	SumSpan  = 4096 // most elements of a span of array_sum_*
	SumLanes = 256  // lanes of a sum: element i is added to lane i modulo SumLanes
	SortSpan = 2048 // most keys of a span of array_sort_spans_*
	Digits   = 256  // values of a digit of a sort, which has 8 bits
	// MaxSpan is the maximum of elements of a span of array_histogram_* and of keys of a sort.
	MaxSpan = 1<<32 - 1
)

// Words of 64 bits of a span, which is the part of an array that a block works on.
const (
	SpanFirst = 0 // the first element, counted from the start of the buffer
	SpanCount = 1 // elements
	SpanWords = 2 // of array_stats_*, array_sum_* and array_sort_spans_*

	SpanBase       = 2 // the element that the array of the span begins with
	SpanDescending = 3 // 1: the largest element comes first
	KeySpanWords   = 4 // of array_keys_* and array_gather_*

	SpanLeast      = 2 // a double, the lower end of the first bin
	SpanMost       = 3 // a double, the upper end of the last bin
	SpanScale      = 4 // a double, bins per unit
	SpanBins       = 5
	SpanCounts     = 6 // the place of the first bin in counts
	SpanOutside    = 7 // the place of the counts below, above and of NaN in outside
	HistogramWords = 8 // of array_histogram_*
)

// Words of 64 bits of a result of array_stats_*.
const (
	StatsLeast = iota // the least key; all ones if there is none
	StatsMost         // the largest key; 0 if there is none
	StatsLow          // of integers the sum of the low halves; of floats the number of NaN
	StatsHigh         // of integers the sum of the high halves
	StatsWords
)

// Stats returns the name of the kernel for the least and the largest element and for sums of
// integers.
func Stats(e Element) string { return "array_stats_" + string(e) }

// Sum returns the name of the kernel that sums floats, F32 or F64.
func Sum(e Element) string { return "array_sum_" + string(e) }

// Histogram returns the name of the kernel that counts by bins.
func Histogram(e Element) string { return "array_histogram_" + string(e) }

// Keys returns the name of the kernel that makes keys for sorting.
func Keys(e Element) string { return "array_keys_" + string(e) }

// Fold returns the name of the kernel that adds arrays element by element.
func Fold(e Element) string { return "array_fold_" + string(e) }

// SortSpans returns the name of the kernel that sorts spans in shared memory.
func SortSpans(e Element) string { return "array_sort_spans_" + e.KeyBits() }

// CountDigits returns the name of the kernel that counts the digits of keys.
func CountDigits(e Element) string { return "array_digits_" + e.KeyBits() }

// Scatter returns the name of the kernel that moves keys to the order of one digit.
func Scatter(e Element) string { return "array_scatter_" + e.KeyBits() }

// Gather returns the name of the kernel that moves elements to their places.
func Gather(e Element) string { return "array_gather_" + e.KeyBits() }

// Starts is the name of the kernel that replaces counts by the sums before them.
const Starts = "array_starts"

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen arrayset

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

// cTypes has the C type of each element, the unsigned type of its size, and the macro of its class.
var cTypes = map[Element][3]string{
	F32: {"float", "unsigned int", "FLOATS"},
	F64: {"double", "unsigned long long", "FLOATS"},
	I32: {"int", "unsigned int", "SIGNED"},
	I64: {"long long", "unsigned long long", "SIGNED"},
	U32: {"unsigned int", "unsigned int", "UNSIGNED"},
	U64: {"unsigned long long", "unsigned long long", "UNSIGNED"},
}

func init() {
	set := kernels.Set{Folder: "arrayset", Files: files, Params: paramsOf}
	add := func(name string, e Element, file string, maxBlock int, wholeWarps bool) {
		set.Register(kernels.Source{
			Name: name, File: file, MaxBlock: maxBlock, WholeWarps: wholeWarps,
			// What depends on the type, the common text, and the file with the name of the kernel.
			Text: func() string {
				c := cTypes[e]
				text := fmt.Sprintf("typedef %s Element;\ntypedef %s Key;\n#define %s\n", c[0], c[1], c[2]) +
					set.Text("doubles.cuh", "elements.cuh", file)
				return strings.Replace(text, "NAME(", name+"(", 1)
			},
		})
	}
	for _, e := range Elements {
		add(Stats(e), e, "stats.cu", 256, true)
		add(Histogram(e), e, "histogram.cu", 0, false)
		add(Keys(e), e, "keys.cu", 0, true)
		add(Fold(e), e, "fold.cu", 0, false)
	}
	for _, e := range []Element{F32, F64} {
		add(Sum(e), e, "sum.cu", 256, true)
	}
	for _, e := range []Element{U32, U64} {
		add(SortSpans(e), e, "sort_spans.cu", 0, false)
		add(CountDigits(e), e, "digits.cu", 0, false)
		add(Scatter(e), e, "scatter.cu", 256, true)
		add(Gather(e), e, "gather.cu", 0, false)
	}
	add(Starts, U32, "starts.cu", 0, true)
}
