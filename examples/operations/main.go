// Operations makes the data of the tutorial docs/tutorial-operations.md, and sends rows as a plant
// would, in place of the gateway of a real plant.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

const usage = `usage:
  operations make FILE DEVICES ROWS     write a Parquet file with ROWS readings of each device
  operations push FILE URL              push the rows of such a file
  operations live URL DEVICES BROKEN    push one further reading of each device; device BROKEN is hot`

// begin is the time of the first readings, in seconds since 1970, and every the time between two.
const (
	begin = 1_790_000_000
	every = 60
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "operations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return -1
		}
		return n
	}
	switch {
	case len(args) == 4 && args[0] == "make" && number(2) > 0 && number(3) > 0:
		return writeReadings(args[1], number(2), number(3))
	case len(args) == 3 && args[0] == "push":
		return pushFile(ctx, args[1], args[2])
	case len(args) == 4 && args[0] == "live" && number(2) > 0 && number(3) >= 0:
		return pushLive(ctx, args[1], number(2), number(3))
	}
	return errors.New(usage)
}

// reading returns the temperature of a device, which has its own level and noise.
func reading(r *rand.Rand, device int) float64 {
	return 20 + float64(device%50) + float64(int(r.NormFloat64()*float64(1+device%3)*10))/10
}

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "time", Type: arrow.PrimitiveTypes.Int64},
	{Name: "device_id", Type: arrow.BinaryTypes.String},
	{Name: "temperature", Type: arrow.PrimitiveTypes.Float64},
}, nil)

func deviceID(device int) string { return fmt.Sprintf("sensor-%05d", device) }

func writeReadings(path string, devices, readings int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, err := pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, w.Close()) }() // it closes the file too
	r := rand.New(rand.NewPCG(1, 1))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for t := range readings {
		for d := range devices {
			b.Field(0).(*array.Int64Builder).Append(begin + int64(t)*every)
			b.Field(1).(*array.StringBuilder).Append(deviceID(d))
			b.Field(2).(*array.Float64Builder).Append(reading(r, d))
		}
		record := b.NewRecordBatch()
		err := w.Write(record)
		record.Release()
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// pusher collects rows and pushes them in bodies of a few megabytes.
type pusher struct {
	url  string
	body bytes.Buffer
	rows int
}

func (p *pusher) add(ctx context.Context, at int64, id string, value float64) error {
	fmt.Fprintf(&p.body, "{\"time\":%d,\"device_id\":%q,\"temperature\":%v}\n", at, id, value)
	if p.rows++; p.body.Len() < 4<<20 {
		return nil
	}
	return p.flush(ctx)
}

// tries is the number of tries of a body, with a pause between two while the agent says that it
// should come again.
const (
	tries = 12
	pause = 5 * time.Second
)

// flush pushes what is collected. Each try has the same key, so rows that were stored by a try
// without an answer are not stored twice.
func (p *pusher) flush(ctx context.Context) error {
	if p.body.Len() == 0 {
		return nil
	}
	sum := sha256.Sum256(p.body.Bytes())
	for try := 1; ; try++ {
		again, err := p.push(ctx, "readings-"+hex.EncodeToString(sum[:]))
		if err == nil {
			break
		}
		if !again || try == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.body.Reset()
	return nil
}

// push pushes what is collected once, and reports whether it may be tried again.
func (p *pusher) push(ctx context.Context, key string) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(p.body.Bytes()))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode == http.StatusAccepted {
		return false, nil
	}
	again = err != nil || resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable
	return again, errors.Join(err, fmt.Errorf("%s: %s %s", p.url, resp.Status, text))
}

func pushFile(ctx context.Context, path, url string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := pqarrow.ReadTable(ctx, f, nil, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer table.Release()
	if !slices.EqualFunc(table.Schema().Fields(), schema.Fields(), func(a, b arrow.Field) bool {
		return a.Name == b.Name && arrow.TypeEqual(a.Type, b.Type)
	}) {
		return fmt.Errorf("%s has other columns: %v", path, table.Schema())
	}
	p := &pusher{url: url}
	all := array.NewTableReader(table, 0)
	defer all.Release()
	for all.Next() {
		r := all.RecordBatch()
		at, id := r.Column(0).(*array.Int64), r.Column(1).(*array.String)
		value := r.Column(2).(*array.Float64)
		for i := range int(r.NumRows()) {
			if err := p.add(ctx, at.Value(i), id.Value(i), value.Value(i)); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(all.Err(), p.flush(ctx)); err != nil {
		return err
	}
	fmt.Printf("%d rows pushed\n", p.rows)
	return nil
}

// pushLive pushes a reading of each device. Its time is the clock's, so it is after the file.
func pushLive(ctx context.Context, url string, devices, broken int) error {
	p := &pusher{url: url}
	r := rand.New(rand.NewPCG(2, 2))
	for d := range devices {
		value := reading(r, d)
		if d == broken {
			value += 500
		}
		if err := p.add(ctx, liveTime(), deviceID(d), value); err != nil {
			return err
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	fmt.Printf("%d rows pushed\n", p.rows)
	return nil
}

// liveTime returns the time of live readings, in seconds since 1970.
func liveTime() int64 { return max(time.Now().Unix(), begin) }
