package serveprocess

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

const (
	demoName = "demo"
	// demoLength is the time of the example data, which then begins again.
	demoLength = 14 * 24 * time.Hour
	// demoSpeed is the time of the data for each time of a replay: two weeks take ten minutes.
	demoSpeed = float64(demoLength / (10 * time.Minute))
	// demoPast is decided at once at the first start, so that the first incident, five hours later,
	// comes within seconds of the replay.
	demoPast = 88 * time.Hour
	// maxDemoSpeed is 4,000 rows a second.
	maxDemoSpeed = 100
	demoEvery    = 300 * time.Millisecond // between two batches
)

// demo replays the example data into a detector of this process. Its owner sets all fields but
// those behind own, and calls replay once.
type demo struct {
	own
	dir   string // for its place
	speed int    // 1 to maxDemoSpeed

	rows []demoRow // by time
	next uint64    // the next row, counted over all rounds
}

type demoRow struct {
	at            time.Time
	series, value string
}

// newDemo returns the demo of a data folder.
func newDemo(conn *natsq.Conn, snapshots bucket.Bucket, dir string, speed int, log *slog.Logger) *demo {
	return &demo{
		own: own{conn: conn, log: log, snapshots: snapshots, trimEvery: trimEvery}, dir: filepath.Join(dir, "demo"),
		speed: speed,
	}
}

// replay replays the example data until ctx ends. The time of the data goes on from round to round
// and over restarts, so the detector lasts. It returns an error only if it cannot begin.
func (d *demo) replay(ctx context.Context) error {
	if err := d.load(); err != nil {
		return fmt.Errorf("the example data: %w", err)
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("folder of the demo: %w", err)
	}
	fresh, err := d.make(ctx)
	if err != nil {
		return fmt.Errorf("detector of the demo: %w", err)
	}
	if err := d.restore(fresh); err != nil {
		return err
	}
	return d.trimmed(ctx, d.feed)
}

// feed pushes rows at their times until ctx ends.
func (d *demo) feed(ctx context.Context) error {
	d.log.Info("the example data is replayed", "series", 6, "detector", demoName, "times_as_fast", demoSpeed)
	if d.next == 0 {
		d.send(ctx, d.rows[0].at.Add(demoPast))
	}
	began, from := time.Now(), d.time(d.next)
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			d.send(ctx, from.Add(time.Duration(float64(now.Sub(began))*demoSpeed*float64(d.speed))))
		}
		if n%10 == 0 {
			if err := d.store(); err != nil {
				d.log.Warn("the demo repeats rows after a restart", "error", err)
			}
		}
	}
}

// load reads the specification and all series of the example.
func (d *demo) load() error {
	text, err := fs.ReadFile(telemetry.Files, "swarm.yaml")
	if err != nil {
		return err
	}
	if d.spec, err = swarm.Parse("swarm.yaml", text); err != nil {
		return err
	}
	d.spec.Name, d.spec.Key, d.spec.MaxEntities, d.spec.Explain = demoName, []string{"series"}, 8, true
	files, err := fs.Glob(telemetry.Files, "data/*.csv")
	if err != nil {
		return err
	}
	for _, name := range files {
		data, err := fs.ReadFile(telemetry.Files, name)
		if err != nil {
			return err
		}
		series := strings.TrimSuffix(filepath.Base(name), ".csv")
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			at, value, _ := strings.Cut(lines.Text(), ",")
			// The first line is a header.
			if t, err := time.Parse(time.DateTime, at); err == nil {
				d.rows = append(d.rows, demoRow{t, series, value})
			}
		}
	}
	if len(d.rows) == 0 {
		return errors.New("it has no rows")
	}
	slices.SortStableFunc(d.rows, func(a, b demoRow) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.series, b.series))
	})
	return nil
}

// time returns the timestamp of a row of any round.
func (d *demo) time(n uint64) time.Time {
	round, i := n/uint64(len(d.rows)), n%uint64(len(d.rows))
	return d.rows[i].at.Add(time.Duration(round) * demoLength)
}

// send pushes the rows before a time, in messages of at most a thousand.
func (d *demo) send(ctx context.Context, until time.Time) {
	for ctx.Err() == nil && d.time(d.next).Before(until) {
		var lines []byte
		for n := 0; n < 1000 && d.time(d.next).Before(until); n++ {
			r := d.rows[d.next%uint64(len(d.rows))]
			lines = fmt.Appendf(lines, "{\"timestamp\":%q,\"series\":%q,\"value\":%s}\n",
				d.time(d.next).Format(time.DateTime), r.series, r.value)
			d.next++
		}
		d.push(ctx, lines)
	}
}

// placeFile has the number of the next row of the demo, in JSON.
const placeFile = "place.json"

// restore reads the place of an earlier process. A fresh detector begins at the first row.
func (d *demo) restore(fresh bool) error {
	if fresh {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(d.dir, placeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.next)
	}
	if err != nil {
		return fmt.Errorf("place of the demo: %w: remove %s", err, d.dir)
	}
	return nil
}

func (d *demo) store() error {
	return renameio.WriteFile(filepath.Join(d.dir, placeFile), fmt.Append(nil, d.next), 0o600)
}
