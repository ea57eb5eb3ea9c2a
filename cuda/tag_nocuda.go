//go:build !cuda

package cuda

// Built reports whether this binary contains the CUDA device, that is, was built with the tag cuda.
const Built = false
