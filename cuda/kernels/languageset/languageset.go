// Package languageset has the kernels of language models: products of weights with rows, norms,
// rotary positions, attention over pages of keys and values, and the drawing of tokens. Importing
// it adds them to the set of package kernels. Package gpuagents/transformer launches them, and
// cuda/host/languagetwin has their twins. The order of each sum is in RFC 0076.
//
// A row is a token of an agent. rows has RowWords words for each. Widths are multiples of 8, and of
// 32 where weights are Q8_0. Rows of float32 are one behind the other.
//
// The pages of agents are frames of frame_bytes in pool. A page is float32[layer][keys,
// values][positions][kv_heads * head]; frames has the frame of each page of an agent, from the
// place on that its rows name.
package languageset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// What the kernels of a type of weights are called; Name has the whole names.
const (
	// Embed looks the tokens of rows up: x, float32[count][columns].
	Embed = "language_embed"
	// Product writes y, float32[count][outputs], y = W x. The flags of ProductBias and ProductAdd
	// say what is added to it.
	Product = "language_product"
)

// The kernels of all types.
const (
	// Norm is RMSNorm: y = x / sqrt(mean(x*x) + epsilon) * weights. With picked of 1, row i of y is
	// of row picks[i] of x.
	Norm = "language_norm"
	// Rotate turns the heads of q in place and of k into pages by turns,
	// float32[position][head/2][cos, sin], behind the norms of heads if the flags have RotateNorms,
	// and stores v in pages.
	Rotate = "language_rotate"
	// Attend computes parts of attention for rows first_row to first_row+count-1:
	// float32[row][heads] [splits][PartHead+head] with the largest score, the sum of likelihoods,
	// and the sum of values. A row has the splits up to its position, at most splits; with a window
	// not 0 it sees that number of positions, its own among them. q is float32[row][heads][head].
	Attend = "language_attend"
	// Merge merges the parts of rows into y, float32[row][heads][head].
	Merge = "language_merge"
	// Gate is gate = gate / (1 + e^-gate) * up, of count values.
	Gate = "language_gate"
	// Sample draws a token for each row of logits, float32[count][vocabulary], which it changes.
	// draws has DrawWords words for each; tokens, uint32[count][2], are the token and the bits of
	// the logarithm of its likelihood.
	Sample = "language_sample"
)

// Numbers that kernels and their callers agree on.
const (
	Block       = 256 // maximum of threads of a block
	AttendBlock = 128 // of Attend
	Split       = 256 // positions of a split
	PartHead    = 4   // values of a part before its sum of values
	RowWords    = 4   // token, position, and the place in frames of the agent's first

	// Flags of Product: bias is added, and then what y had before.
	ProductBias = 1
	ProductAdd  = 2
	// Flags of Rotate: heads have norms; a pair is two values side by side.
	RotateNorms = 1
	RotatePairs = 2
)

// Words of a draw. Floats are bits. A temperature of 0 takes the largest logit. A top_p or a top_k
// of 0 keeps all.
const (
	DrawTemperature = 0
	DrawTopP        = 1
	DrawMinP        = 2
	DrawRepetition  = 3
	DrawTopK        = 4
	DrawCount       = 5  // of tokens at DrawRecent
	DrawSeed        = 6  // two words, the low one first
	DrawAgent       = 8  // two words
	DrawPosition    = 10 // of the drawn token
	DrawRecent      = 16
	MaxRecent       = 64
	DrawWords       = DrawRecent + MaxRecent
)

// WeightScale is the weight of the likeliest token of a draw.
const WeightScale = 1 << 40

// Types returns the types of weights, by their names in package quant.
func Types() []string { return []string{quant.F32, quant.BF16, quant.Q8_0} }

// Name is the name of a kernel of a type of weights.
func Name(what, kind string) string { return what + "_" + strings.ToLower(kind) }

// Names returns the names of the kernels.
func Names() []string {
	var all []string
	for _, kind := range Types() {
		all = append(all, Name(Embed, kind), Name(Product, kind))
	}
	return append(all, Norm, Rotate, Attend, Merge, Gate, Sample)
}

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen languageset

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{Folder: "languageset", Files: files, Params: paramsOf, Head: head()}
	common := func() string { return kernels.Common("philox.cuh") + kernels.Common("fma.cuh") }
	for _, kind := range Types() {
		for _, what := range []string{Embed, Product} {
			name, file := Name(what, kind), strings.TrimPrefix(what, "language_")+".cu"
			set.Register(kernels.Source{Name: name, File: file, MaxBlock: Block, WholeWarps: true, Text: func() string {
				return fmt.Sprintf("#define ELEM %s\n", kind) + common() +
					strings.Replace(set.Text("language.cuh", "elements.cuh", file), "\nKERNEL_NAME(", "\n"+name+"(", 1)
			}})
		}
	}
	for _, name := range []string{Norm, Rotate, Attend, Merge, Gate, Sample} {
		file, most := strings.TrimPrefix(name, "language_")+".cu", Block
		if name == Attend {
			most = AttendBlock
		}
		set.Register(kernels.Source{Name: name, File: file, MaxBlock: most, WholeWarps: true, Text: func() string {
			return common() + set.Text("language.cuh", file)
		}})
	}
}

func head() string {
	var b strings.Builder
	for _, d := range []struct {
		name  string
		value int
	}{
		{"SPLIT", Split},
		{"PART_HEAD", PartHead},
		{"PRODUCT_BIAS", ProductBias},
		{"PRODUCT_ADD", ProductAdd},
		{"ROTATE_NORMS", RotateNorms},
		{"ROTATE_PAIRS", RotatePairs},
		{"SAMPLE_BLOCK", Block},
		{"MAX_RECENT", MaxRecent},
		{"DRAW_TEMPERATURE", DrawTemperature},
		{"DRAW_TOP_P", DrawTopP},
		{"DRAW_MIN_P", DrawMinP},
		{"DRAW_REPETITION", DrawRepetition},
		{"DRAW_TOP_K", DrawTopK},
		{"DRAW_COUNT", DrawCount},
		{"DRAW_SEED", DrawSeed},
		{"DRAW_AGENT", DrawAgent},
		{"DRAW_POSITION", DrawPosition},
		{"DRAW_RECENT", DrawRecent},
		{"DRAW_WORDS", DrawWords},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", d.name, d.value)
	}
	fmt.Fprintf(&b, "#define WEIGHT_SCALE %d.0f\n", int64(WeightScale))
	return b.String()
}
