// Command handler is a CPU agent with its own kind of job: "celsius" turns degrees Fahrenheit into
// Celsius. It works in addition to the agents of cpuagent: each agent takes jobs of the kinds that
// it serves.
//
//	exoswarm nats --data-dir /tmp/nats &
//	go run -C examples ./handler &
//	exoswarm submit --kind celsius --spec '{"fahrenheit": [32, 212]}' --wait
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url); err != nil {
		slog.Error("handler", "error", err)
		os.Exit(1)
	}
}

// celsius does one job. The queue gives a job out again when an agent dies, so it must bear being
// done twice.
func celsius(_ context.Context, job jobs.Job) (any, error) {
	var spec struct {
		Fahrenheit []float64 `json:"fahrenheit"`
	}
	if err := json.Unmarshal(job.Spec, &spec); err != nil || len(spec.Fahrenheit) == 0 {
		return nil, jobs.Errorf(jobs.CodeInvalid, `job %s: write {"fahrenheit": [NUMBER, ...]}`, job.ID)
	}
	out := make([]float64, len(spec.Fahrenheit))
	for i, f := range spec.Fahrenheit {
		out[i] = (f - 32) * 5 / 9
	}
	return map[string]any{"celsius": out}, nil
}

// run is an agent: it connects, works, shows itself in the registry, and gives its jobs back at the
// end. It returns nil when ctx ends, also while it starts.
func run(ctx context.Context, url string) (err error) {
	defer func() {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil
		}
	}()
	var handlers cpuagents.Handlers // or cpuagents.Handle, for the handlers of the process
	if err := handlers.Handle("celsius", celsius); err != nil {
		return err
	}
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "celsius"})
	if err != nil {
		return err
	}
	defer conn.Close()
	worker, err := conn.Work(ctx, natsq.WorkerOptions{
		Name: "celsius", Pool: jobs.PoolCPU, Handlers: handlers.Jobs(),
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, within(10*time.Second, worker.Drain)) }()
	started := time.Now().UTC()
	entry, err := conn.Registry.Announce(ctx, func() jobs.Agent {
		return jobs.Agent{
			Name: "celsius", Pool: jobs.PoolCPU, Kinds: handlers.Kinds(), Running: worker.Running(),
			State: "serving", Started: started,
		}
	}, slog.Default())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, within(5*time.Second, entry.Close)) }()
	slog.Info("ready", "kinds", handlers.Kinds())
	select {
	case <-ctx.Done():
	case <-entry.Drained(): // an operator asked for it
	}
	return nil
}

// within calls fn with its own time to end, apart from the time of the work.
func within(d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return fn(ctx)
}
