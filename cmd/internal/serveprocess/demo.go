package serveprocess

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Times of a demo at its normal speed; a demo that is n times as fast divides them by n.
const (
	// demoEvery is the time between two rows of a series.
	demoEvery = 100 * time.Millisecond
	// demoLength is the length of one run. The log and the job of a run go with it, so files stay
	// bounded.
	demoLength = 10 * time.Minute
	// demoPause is the time between two runs of a series, also after a run that failed.
	demoPause = 5 * time.Second
	// maxDemoSpeed is a row of each series a millisecond.
	maxDemoSpeed = 100
)

// demoSeries are the series of the example that the demo replays, each as a separate run.
var demoSeries = []string{"cpu_load_percent.csv", "latency_p99_ms.csv", "pump_power_w.csv"}

// demo replays the example data into the cluster of this process. Its owner sets all fields but
// jobs and calls replay once.
type demo struct {
	conn  *natsq.Conn
	url   string // of the NATS server
	dir   string // for the specification and the ids of its jobs
	speed int    // 1 to maxDemoSpeed
	log   *slog.Logger

	mu   sync.Mutex
	jobs map[string]string // the job of each series, by its file
}

// replay replays the example data until ctx ends. Each series has its own job, which reads rows as
// they come, with the present time, and a new job after demoLength. A run that fails is logged and
// followed by the next one. Jobs of an earlier process, to which nobody sends rows any more, are
// cancelled first. It returns an error only if it cannot begin, and nil when ctx has ended and all
// runs with it.
func (d *demo) replay(ctx context.Context) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("folder of the demo: %w", err)
	}
	if err := d.cancelEarlier(ctx); err != nil {
		return err
	}
	spec := filepath.Join(d.dir, "swarm.yaml")
	data, err := fs.ReadFile(telemetry.Files, "swarm.yaml")
	if err == nil {
		err = renameio.WriteFile(spec, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("unpack the example: %w", err)
	}
	var series sync.WaitGroup
	for _, name := range demoSeries {
		series.Go(func() {
			for ctx.Err() == nil {
				if err := d.replayOnce(ctx, spec, name); err != nil && ctx.Err() == nil {
					d.log.Warn("a run of the demo ended", "series", name, "error", err)
				}
				select {
				case <-time.After(demoPause / time.Duration(d.speed)):
				case <-ctx.Done():
				}
			}
		})
	}
	d.log.Info("the example data is replayed", "series", len(demoSeries))
	series.Wait()
	return nil
}

// idFile has the ids of the jobs of the demo, by series, in JSON. It is in the folder of the demo
// and outlives the process, so that the next one can cancel what a kill has left behind.
const idFile = "jobs.json"

// cancelEarlier cancels the jobs that idFile names. A job that has ended meanwhile is not an error.
// A damaged file is one, because its jobs would read for ever.
func (d *demo) cancelEarlier(ctx context.Context) error {
	d.jobs = map[string]string{}
	data, err := os.ReadFile(filepath.Join(d.dir, idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.jobs)
	}
	if err != nil {
		return fmt.Errorf("jobs of the demo: %w: remove %s", err, d.dir)
	}
	for _, id := range d.jobs {
		j, err := d.conn.Queue.Find(ctx, id)
		if err == nil {
			err = d.conn.Queue.Cancel(ctx, j, false)
		}
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return fmt.Errorf("cancel job %s of an earlier demo: %w", id, err)
		}
	}
	clear(d.jobs)
	return nil
}

// note stores the id of the job of a series for the next process. The runs of several series call
// it at the same time.
func (d *demo) note(series, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[series] = id
	data, err := json.Marshal(d.jobs)
	if err != nil {
		return fmt.Errorf("jobs of the demo: %w", err)
	}
	return renameio.WriteFile(filepath.Join(d.dir, idFile), data, 0o600)
}

// ids is the writer of the messages of a run, which are JSON objects, one for each Write. It calls
// the function with the id of the job when a message has one.
type ids func(id string)

// Write implements io.Writer.
func (f ids) Write(message []byte) (int, error) {
	var m struct {
		Job string `json:"job"`
	}
	if json.Unmarshal(message, &m) == nil && m.Job != "" {
		f(m.Job)
	}
	return len(message), nil
}

// replayOnce is one run over a series: a job that reads the rows of pace from a pipe and ends with
// them. It returns nil if ctx has interrupted it. Decisions are dropped here; the dashboard reads
// them from the logs of the swarm.
func (d *demo) replayOnce(ctx context.Context, spec, name string) error {
	data, err := fs.ReadFile(telemetry.Files, "data/"+name)
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	rows, feed := io.Pipe()
	defer rows.Close()
	// The goroutine ends when its rows end, with ctx, or when the reader is closed.
	go func() { _ = feed.CloseWithError(pace(ctx, feed, data, d.speed)) }()
	err = runjob.Run(ctx, runjob.Options{
		Command: "serve", In: rows, Out: io.Discard, Log: d.log, Progress: "json",
		Err: ids(func(id string) {
			if err := d.note(name, id); err != nil {
				d.log.Warn("the demo may leave a job behind", "job", id, "error", err)
			}
		}),
		SpecFile: spec, Inputs: []string{"-"}, Output: "-", NATS: d.url, Patience: time.Minute,
	})
	// The end of the process is not a failure of the run.
	if errors.Is(err, command.ErrInterrupted) {
		return nil
	}
	return err
}

// pace writes the rows of a CSV file to w, one each demoEvery divided by speed, with the present
// time for their timestamps. At the end of the data it begins again. It returns nil after
// demoLength divided by speed or when ctx ends, and otherwise the error of w. data begins with a
// header, whose first column is the timestamp.
func pace(ctx context.Context, w io.Writer, data []byte, speed int) error {
	tick := time.NewTicker(demoEvery / time.Duration(speed))
	defer tick.Stop()
	end := time.Now().Add(demoLength / time.Duration(speed))
	header, _, _ := bytes.Cut(data, []byte{'\n'})
	if _, err := fmt.Fprintf(w, "%s\n", header); err != nil {
		return err
	}
	for {
		lines := bufio.NewScanner(bytes.NewReader(data[len(header)+1:]))
		for lines.Scan() {
			_, values, ok := strings.Cut(lines.Text(), ",")
			if !ok {
				continue
			}
			select {
			case now := <-tick.C:
				if now.After(end) {
					return nil
				}
				if _, err := fmt.Fprintf(w, "%s,%s\n", now.UTC().Format(time.RFC3339Nano), values); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
	}
}
