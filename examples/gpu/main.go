// Command gpu submits two jobs to the GPU agents of a cluster and prints their results: the sum of
// two vectors by its own CUDA kernel, and the product of two matrices.
//
//	exoswarm nats --data-dir /tmp/nats &
//	gpuagent --nats nats://127.0.0.1:4222 --allow-kernels &
//	go run -C examples ./gpu
//
// An agent without a GPU multiplies the matrices, and refuses the kernel.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

//go:embed vector_add.cu
var vectorAdd string

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *url, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run submits both jobs, and prints their results.
func run(ctx context.Context, url string, out io.Writer) error {
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "example"})
	if err != nil {
		return err
	}
	defer conn.Close()
	var product gpujob.GemmOutput
	if err := do(ctx, conn, matrices(), &product); err != nil {
		return err
	}
	fmt.Fprintln(out, "matrix product:", gpujob.Decode[float32](product.C.Data))
	var sum gpujob.KernelOutput
	if err := do(ctx, conn, vectors(1000), &sum); err != nil {
		fmt.Fprintln(out, "vector sum:", err)
		return nil
	}
	c := gpujob.Decode[float32](sum.Arrays["c"].Data)
	fmt.Fprintln(out, "vector sum:", c[0], c[1], "...", c[len(c)-1])
	return nil
}

func matrices() gpujob.Spec {
	return &gpujob.GemmSpec{
		A: gpujob.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		B: gpujob.From([]float32{7, 8, 9, 10, 11, 12}, 3, 2),
	}
}

// vectors returns the specification of the sum of two vectors of n elements, n >= 1.
func vectors(n int) gpujob.Spec {
	a, b := make([]float32, n), make([]float32, n)
	for i := range n {
		a[i], b[i] = float32(i), float32(2*i)
	}
	x, y := gpujob.From(a), gpujob.From(b)
	return &gpujob.KernelSpec{
		Source: vectorAdd, Entry: "vector_add", Grid: []int{(n + 255) / 256}, Block: []int{256},
		Args: []gpujob.Arg{
			{Array: &x},
			{Array: &y},
			{Name: "c", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{int64(n)}}},
			{Type: gpujob.U64, Value: json.Number(fmt.Sprint(n))},
		},
	}
}

func do(ctx context.Context, conn *natsq.Conn, s gpujob.Spec, output any) error {
	job, err := gpujob.NewJob(natsconn.NewID(), s)
	if err != nil {
		return err
	}
	if err := conn.Queue.Submit(ctx, job); err != nil {
		return err
	}
	result, err := conn.Results.Result(ctx, job.ID)
	if err != nil {
		return err
	}
	if result.Error != nil {
		return result.Error
	}
	return json.Unmarshal(result.Output, output)
}
