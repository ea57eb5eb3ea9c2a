//go:build cuda

package cuda

// Built says whether this binary contains the CUDA device: whether it was built with the tag cuda.
const Built = true
