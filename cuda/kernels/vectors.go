package kernels

// FillU32Args are the arguments of fill_u32, which fills out with n words.

// VectorAddF32Args are the arguments of vector_add_f32, which adds n float32 of a and b to c.

// ChecksumArgs are the arguments of checksum.
//
//   - data: n bytes, starting at a multiple of 8
//   - sum: in and out uint64[1]

// The kernels of a first example: one that fills memory, and one that adds two arrays.
func init() {
	for _, name := range []string{"fill_u32", "vector_add_f32", "checksum"} {
		register(Source{Name: name, File: name + ".cu"})
	}
}
