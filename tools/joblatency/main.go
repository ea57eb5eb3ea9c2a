// Command joblatency measures the time from submitting a job to its result, of a small kernel in
// pool gpu and of as much work in pool cpu, in turns, over a running cluster:
//
//	exoswarm nats --data-dir nats &
//	gpuagent --nats nats://127.0.0.1:4222 --device cuda:0 --allow-kernels &
//	go run -C examples ./handler &
//	go run -C tools ./joblatency
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// source turns degrees Fahrenheit into Celsius, as the handler of examples/handler does.
const source = `extern "C" __global__ void celsius(const float *f, float *c, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = (f[i] - 32.0f) * 5.0f / 9.0f;
}`

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	count := flag.Int("jobs", 300, "jobs of each pool, after 20 that are not measured")
	values := flag.Int("values", 1000, "numbers of a job")
	flag.Parse()
	if *count < 1 || *values < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, *url, *count, *values); err != nil {
		log.Fatal("joblatency: ", err)
	}
}

func run(ctx context.Context, url string, count, values int) error {
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "joblatency"})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", url, err)
	}
	defer conn.Close()
	const warm = 20
	var gpu, cpu []time.Duration
	for i := range warm + count {
		for _, kind := range []string{"gpu", "cpu"} {
			job, err := newJob(kind, i, values)
			if err != nil {
				return err
			}
			took, err := measure(ctx, conn, job)
			if err != nil {
				return fmt.Errorf("job %d of pool %s: %w", i, kind, err)
			}
			switch {
			case i < warm:
			case kind == "gpu":
				gpu = append(gpu, took)
			default:
				cpu = append(cpu, took)
			}
		}
	}
	slices.Sort(gpu)
	slices.Sort(cpu)
	for _, p := range []float64{0.1, 0.5, 0.9, 0.99} {
		i := int(p * float64(count-1))
		fmt.Printf("p%-3.0f gpu %8v  cpu %8v  %.2f\n", 100*p, gpu[i].Round(time.Microsecond),
			cpu[i].Round(time.Microsecond), float64(gpu[i])/float64(cpu[i]))
	}
	return nil
}

func newJob(pool string, i, values int) (jobs.Job, error) {
	of := make([]float32, values)
	for k := range of {
		of[k] = float32(i + k)
	}
	if pool == "gpu" {
		in := gpujob.From(of)
		return gpujob.NewJob(natsconn.NewID(), &gpujob.KernelSpec{
			Source: source, Entry: "celsius", Grid: []int{(values + 255) / 256}, Block: []int{256},
			Args: []gpujob.Arg{
				{Array: &in},
				{Name: "c", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{int64(values)}}},
				{Type: gpujob.U32, Value: json.Number(fmt.Sprint(values))},
			},
		})
	}
	spec, err := json.Marshal(map[string][]float32{"fahrenheit": of})
	return jobs.Job{
		Version: jobs.Version, ID: natsconn.NewID(), Pool: jobs.PoolCPU, Kind: "celsius", Spec: spec,
	}, err
}

func measure(ctx context.Context, conn *natsq.Conn, job jobs.Job) (time.Duration, error) {
	began := time.Now()
	if err := conn.Queue.Submit(ctx, job); err != nil {
		return 0, err
	}
	r, err := conn.Results.Result(ctx, job.ID)
	if err == nil && r.Error != nil {
		err = r.Error
	}
	return time.Since(began), err
}
