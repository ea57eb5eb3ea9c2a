package devicetest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// cases has one entry for each kernel of the set. Kernels of cells, whose names end in _observe,
// have RunObserve instead. init functions of other files add the families of kernels.
var cases = map[string]testCase{
	"fill_u32": {make: func(r *rand.Rand, n int) []param {
		return []param{output(4 * n), {arg: device.Uint64(uint64(n))}, {arg: device.Uint32(r.Uint32())}}
	}},
	"vector_add_f32": {make: func(r *rand.Rand, n int) []param {
		return []param{input(floats(r, n)), input(floats(r, n)), output(4 * n), {arg: device.Uint64(uint64(n))}}
	}},
	"reciprocal_f32": {compiled: true, make: func(r *rand.Rand, n int) []param {
		x := make([]float32, n)
		for i := range x {
			x[i] = math.Float32frombits((127-100+r.Uint32N(225))<<23 | r.Uint32N(1<<23))
		}
		return []param{input(append([]byte{}, device.Bytes(x)...)), output(4 * n), {arg: device.Uint64(uint64(n))}}
	}},
	"gemm_f32": {make: func(r *rand.Rand, n int) []param {
		return gemmCase(r, n, 4, 4)
	}},
	"gemm_bf16": {make: func(r *rand.Rand, n int) []param {
		return gemmCase(r, n, 2, 2)
	}},
	"gemm_bf16_f32": {make: func(r *rand.Rand, n int) []param {
		return gemmCase(r, n, 2, 4)
	}},
	"checksum": {make: func(r *rand.Rand, n int) []param {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		return []param{input(data), {arg: device.Uint64(uint64(n))}, {mem: make([]byte, 8), out: true}}
	}},
}

func init() {
	for _, name := range launches.TallyKernels {
		cases[name] = tallyCase(name)
	}
}

func init() {
	add := func(kernel string, random func(r *rand.Rand, kernel string, n int) *launches.Arrays) {
		cases[kernel] = testCase{compiled: true, make: func(r *rand.Rand, n int) (params []param) {
			a := random(r, kernel, n)
			for i, p := range a.Params {
				params = append(params, param{mem: p.Mem, out: a.Out[i], arg: p.Arg})
			}
			return params
		}}
	}
	for _, kernel := range launches.ArrayKernels() {
		add(kernel, launches.RandomArrays)
	}
	for _, kernel := range launches.GraphKernels() {
		add(kernel, launches.RandomGraph)
	}
	for _, kernel := range launches.GridKernels() {
		add(kernel, launches.RandomGrid)
	}
	for _, kernel := range launches.LanguageKernels() {
		add(kernel, launches.RandomLanguage)
	}
	for _, kernel := range launches.QuantumKernels() {
		add(kernel, launches.RandomQuantum)
	}
	for _, kernel := range launches.SpaceKernels() {
		add(kernel, launches.RandomSpace)
	}
	for _, kernel := range launches.SwarmKernels() {
		add(kernel, launches.RandomSwarm)
	}
	for _, kernel := range launches.TrainKernels() {
		add(kernel, launches.RandomTrain)
	}
}

func init() {
	for _, kernel := range launches.FuseKernels {
		cases[kernel] = fuseCaseOf(kernel)
	}
}

// gemmCase is a product of matrices of small integers, which is exact in every order of its sums.
// factor and result are the bytes of an element. An odd size transposes both factors.
func gemmCase(r *rand.Rand, size, factor, result int) []param {
	m, n, k := size%331, size/7%139, size%83
	// put returns count random elements of a number of bytes.
	put := func(count, bytes int) []byte {
		mem := make([]byte, count*bytes)
		for i := range count {
			v := float32(r.IntN(9) - 4)
			if bytes == 2 {
				binary.LittleEndian.PutUint16(mem[2*i:], device.ToBF16(v))
			} else {
				binary.LittleEndian.PutUint32(mem[4*i:], math.Float32bits(v))
			}
		}
		return mem
	}
	out := param{mem: put(m*n, result), out: true}
	word := func(v int) param { return param{arg: device.Uint64(uint64(v))} }
	count := func(v int) param { return param{arg: device.Uint32(uint32(v))} }
	a, b := []param{word(k), word(1)}, []param{word(n), word(1)}
	if size%2 == 1 { // transposed
		a, b = []param{word(1), word(m)}, []param{word(1), word(k)}
	}
	return []param{
		input(put(m*k, factor)), input(put(k*n, factor)), out, count(m), count(n), count(k),
		a[0], a[1], b[0], b[1], word(n),
		{arg: device.Float32(0.5)},
		{arg: device.Float32(float32(size % 3))},
	}
}

// input is memory that the kernel must not change.
func input(mem []byte) param { return param{mem: mem} }

// output is memory of n bytes that the kernel must write completely: both devices start from the
// same poison, so a byte that only one device writes is a difference.
func output(n int) param {
	return param{mem: launches.Poisoned(n), out: true}
}

// floats returns n float32 of both signs and many magnitudes, as bytes. None of them is infinite or
// NaN.
func floats(r *rand.Rand, n int) []byte {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64()) * float32(int64(1)<<r.IntN(20))
	}
	return append([]byte{}, device.Bytes(v)...)
}

// Checksum returns what the kernel checksum computes for data. It is the plain twin of the kernel.
func Checksum(data []byte) uint64 {
	mix := func(word, i uint64) uint64 {
		z := word + (i+1)*0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return z ^ z>>31
	}
	sum := mix(uint64(len(data)), ^uint64(0)-1)
	for i := 0; i < len(data); i += 8 {
		var word [8]byte
		copy(word[:], data[i:])
		sum += mix(binary.LittleEndian.Uint64(word[:]), uint64(i/8))
	}
	return sum
}
