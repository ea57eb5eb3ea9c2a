package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// must ends the example where a program would return the error.
func must[T any](v T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return v
}

// A kernel of the caller: the vector addition of every introduction to CUDA.
func Example_vectorAdd() {
	d := must(cuda.Open(context.Background(), "cuda:0", cuda.Options{}))
	defer d.Close()
	k := must(d.Compile("add", `__global__ void add(const float *a, const float *b, float *c, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}`))
	a := must(device.From(d, []float32{1, 2, 3, 4}, "vectors"))
	b := must(device.From(d, []float32{10, 20, 30, 40}, "vectors"))
	c := must(device.Make[float32](d, 4, "vectors"))
	s := must(d.NewStream())
	err := errors.Join(s.Launch(k, k.Cover(4), device.Ptr(a.Buffer), device.Ptr(b.Buffer), device.Ptr(c.Buffer),
		device.Int32(4)),
		s.Sync(context.Background()))
	fmt.Println(must(c.All()), err)
	_ = errors.Join(s.Close(), a.Close(), b.Close(), c.Close())
	// Prints [11 22 33 44] <nil>
}

// A product of matrices by a kernel of two dimensions.
func Example_matrixMultiply() {
	d := must(cuda.Open(context.Background(), "cuda:0", cuda.Options{}))
	defer d.Close()
	k := must(d.Compile("mul", `__global__ void mul(const float *a, const float *b, float *c, int n) {
	int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= n || col >= n) return;
	float sum = 0;
	for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + col];
	c[row * n + col] = sum;
}`))
	a := must(device.From(d, []float32{1, 2, 3, 4}, "matrices"))
	b := must(device.From(d, []float32{5, 6, 7, 8}, "matrices"))
	c := must(device.Make[float32](d, 4, "matrices"))
	s := must(d.NewStream())
	shape := device.Geometry{Grid: 1, GridY: 1, Block: 16, BlockY: 16}
	err := errors.Join(s.Launch(k, shape, device.Ptr(a.Buffer), device.Ptr(b.Buffer), device.Ptr(c.Buffer),
		device.Int32(2)),
		s.Sync(context.Background()))
	fmt.Println(must(c.All()), err)
	_ = errors.Join(s.Close(), a.Close(), b.Close(), c.Close())
	// Prints [19 22 43 50] <nil>
}
