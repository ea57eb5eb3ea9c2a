package launches

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// LanguageKernels returns the kernels that RandomLanguage knows, in a fixed order.
func LanguageKernels() []string { return languageset.Names() }

// normal returns n float32 from a normal distribution.
func normal(r *rand.Rand, n int) []float32 {
	all := make([]float32, n)
	for i := range all {
		all[i] = float32(r.NormFloat64())
	}
	return all
}

// RandomLanguage returns a random launch of a kernel of package languageset over about n elements.
func RandomLanguage(r *rand.Rand, kernel string, n int) *Arrays {
	a := &Arrays{}
	columns := 32 * (1 + r.IntN(9))
	if !strings.HasSuffix(kernel, "q8_0") {
		columns += 8 * r.IntN(4)
	}
	count := 1 + r.IntN(9)
	switch kernel {
	case languageset.Norm:
		rows := count + r.IntN(4)
		picks := make([]uint32, count)
		for i := range picks {
			picks[i] = r.Uint32N(uint32(rows))
		}
		return a.in(own(normal(r, rows*columns))).in(own(normal(r, columns))).in(own(picks)).
			out(Poisoned(4 * count * columns)).word(columns).word(count).word(r.IntN(2)).scalar(device.Float32(1e-5))
	case languageset.Rotate, languageset.Attend, languageset.Merge:
		return randomAttention(r, a, kernel, n)
	case languageset.Gate:
		gate := normal(r, n+1)
		for i := range gate {
			gate[i] *= float32(math.Exp(4 * r.NormFloat64()))
		}
		return a.out(own(gate)).in(own(normal(r, n+1))).scalar(device.Uint64(uint64(n)))
	case languageset.Sample:
		return randomDraws(r, a, 1+n)
	}
	outputs := 1 + min(n, 300)
	weights := matrixOf(r, kernel, outputs*columns)
	if strings.HasPrefix(kernel, languageset.Embed) {
		rows := make([]uint32, languageset.RowWords*count)
		for i := range rows {
			rows[i] = r.Uint32N(uint32(outputs))
		}
		return a.in(weights).in(own(rows)).out(Poisoned(4 * count * columns)).word(columns).word(count)
	}
	return a.in(weights).in(own(normal(r, outputs))).in(own(normal(r, count*columns))).
		out(own(normal(r, count*outputs))).word(outputs).word(columns).word(count).word(r.IntN(4))
}

// matrixOf returns random weights of the type of a kernel.
func matrixOf(r *rand.Rand, kernel string, n int) []byte {
	values := normal(r, n)
	switch {
	case strings.HasSuffix(kernel, "bf16"):
		data := make([]byte, 0, 2*n)
		for _, v := range values {
			data = binary.LittleEndian.AppendUint16(data, device.ToBF16(v))
		}
		return data
	case strings.HasSuffix(kernel, "q8_0"):
		for i := range values { // some scales are no normal halves
			values[i] *= float32(math.Ldexp(1, -r.IntN(3)*10))
		}
		data, err := quant.EncodeQ8(values)
		if err != nil {
			panic(err) // all are finite and small
		}
		return data
	}
	return own(values)
}

// randomAttention makes launches over agents whose positions reach into several splits.
func randomAttention(r *rand.Rand, a *Arrays, kernel string, n int) *Arrays {
	kv, head, count := 1+r.IntN(3), 8*(1+r.IntN(20)), 1+r.IntN(5)
	heads, layers, per := kv*(1+r.IntN(3)), 1+r.IntN(2), 1+r.IntN(40)
	most := 1 + min(n, 700)
	window := 0
	if r.IntN(3) == 0 {
		window = 1 + r.IntN(most)
	}
	pages := (most + per - 1) / per
	frameBytes := 4*2*layers*per*kv*head + 16*r.IntN(3)
	rows, frames := make([]uint32, languageset.RowWords*count), []uint32(nil)
	for _, f := range r.Perm(pages * count) { // each row is of an agent of its own
		frames = append(frames, uint32(f))
	}
	for i := range count {
		rows[languageset.RowWords*i+1] = r.Uint32N(uint32(most))
		rows[languageset.RowWords*i+2] = uint32(i * pages)
	}
	layer, splits := r.IntN(layers), (most-1)/languageset.Split+1
	first := r.IntN(count)
	q := normal(r, count*heads*head)
	pool := func() []byte { // whole frames of float32
		return own(normal(r, pages*count*frameBytes/4))
	}
	part := languageset.PartHead + head
	switch kernel {
	case languageset.Rotate:
		return a.out(own(q)).in(own(normal(r, count*kv*head))).in(own(normal(r, count*kv*head))).
			in(own(normal(r, head))).in(own(normal(r, head))).in(own(normal(r, most*head))).in(own(rows)).word(count).
			in(own(frames)).out(pool()).scalar(device.Uint64(uint64(frameBytes))).word(per).word(layer).word(heads).
			word(kv).word(head).word(r.IntN(4)).scalar(device.Float32(1e-6))
	case languageset.Attend:
		return a.in(own(q)).in(own(rows)).word(first).word(count - first).in(own(frames)).in(pool()).
			scalar(device.Uint64(uint64(frameBytes))).word(per).word(layer).word(heads).word(kv).word(head).
			word(window).scalar(device.Float32(0.3)).word(splits).
			out(Poisoned(4 * (count - first) * heads * splits * part))
	}
	parts := normal(r, (count-first)*heads*splits*part)
	for i := 0; i < len(parts); i += part {
		parts[i] *= 20
		parts[i+1] = 1 + 200*r.Float32()
	}
	return a.in(own(parts)).in(own(rows)).word(first).word(count - first).word(heads).word(head).word(window).
		word(splits).out(Poisoned(4 * count * heads * head))
}

// randomDraws makes a launch with draws of all kinds. Many logits are equal.
func randomDraws(r *rand.Rand, a *Arrays, vocabulary int) *Arrays {
	count := 1 + r.IntN(4)
	logits, draws := normal(r, count*vocabulary), make([]uint32, count*languageset.DrawWords)
	for i := range logits {
		if logits[i] *= 3; r.IntN(2) == 0 {
			logits[i] = float32(math.Round(float64(logits[i])))
		}
	}
	for d := range count {
		draw := draws[d*languageset.DrawWords:][:languageset.DrawWords]
		for i := range languageset.DrawRecent {
			draw[i] = r.Uint32()
		}
		float := func(word int, v float32) { draw[word] = math.Float32bits(v) }
		float(languageset.DrawTemperature, float32(r.IntN(3))*(0.3+r.Float32()))
		float(languageset.DrawTopP, float32(r.IntN(2))*r.Float32())
		float(languageset.DrawMinP, float32(r.IntN(2))*r.Float32()*r.Float32())
		float(languageset.DrawRepetition, 0.5+r.Float32())
		draw[languageset.DrawTopK] = r.Uint32N(2) * r.Uint32N(uint32(vocabulary)+3)
		draw[languageset.DrawCount] = r.Uint32N(languageset.MaxRecent + 1)
		for i := range draw[languageset.DrawCount] {
			draw[languageset.DrawRecent+i] = r.Uint32N(uint32(vocabulary)) / (1 + r.Uint32N(2)*9)
		}
	}
	return a.out(own(logits)).word(vocabulary).in(own(draws)).word(count).out(Poisoned(8 * count))
}
