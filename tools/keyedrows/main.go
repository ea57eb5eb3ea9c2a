// Command keyedrows writes rows of many entities in random order, to measure runs with a key. The
// same flags give the same bytes.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// begin is the time of the first row in unix seconds.
const begin = 1_700_000_000

func main() {
	n := flag.Int("rows", 1_000_000, "number of rows")
	entities := flag.Int("entities", 100_000, "number of entities")
	seed := flag.Uint64("seed", 1, "seed of the order and the values")
	format := flag.String("format", "csv", "csv or ndjson")
	rate := flag.Float64("rate", 0, "rows per second; 0: as fast as they are read")
	pause := flag.Duration("pause", 0, "between the header and the first row, so that the reader has started")
	flag.Parse()
	if *n < 0 || *entities < 1 || *format != "csv" && *format != "ndjson" || *rate < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(os.Stdout, *n, *entities, *seed, *format == "ndjson", *rate, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "keyedrows:", err)
		os.Exit(1)
	}
}

// write writes n rows. A value is a daily wave of its entity with noise, and one in 10,000 is a
// spike. With a rate in rows per second it writes the rows that are due about once a millisecond.
func write(to io.Writer, n, entities int, seed uint64, ndjson bool, rate float64, pause time.Duration) error {
	w := bufio.NewWriterSize(to, 1<<20)
	r := rand.New(rand.NewPCG(seed, seed))
	if !ndjson {
		fmt.Fprintln(w, "timestamp,device_id,value")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	time.Sleep(pause)
	began := time.Now()
	var line []byte
	for i := range n {
		if rate > 0 {
			if err := pace(w, began.Add(time.Duration(float64(i)/rate*float64(time.Second)))); err != nil {
				return err
			}
		}
		e := r.IntN(entities)
		at := begin + int64(i)/100
		v := math.Sin(2*math.Pi*float64(at%86400)/86400+float64(e)) + r.NormFloat64()/10
		if r.IntN(10_000) == 0 {
			v += 50
		}
		line = line[:0]
		if ndjson {
			line = strconv.AppendInt(append(line, `{"timestamp":`...), at, 10)
			line = strconv.AppendInt(append(line, `,"device_id":"device-`...), int64(e), 10)
			line = strconv.AppendFloat(append(line, `","value":`...), v, 'f', 4, 64)
			line = append(line, '}', '\n')
		} else {
			line = strconv.AppendInt(line, at, 10)
			line = strconv.AppendInt(append(line, ",device-"...), int64(e), 10)
			line = strconv.AppendFloat(append(line, ','), v, 'f', 4, 64)
			line = append(line, '\n')
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

// pace returns when a row is due. Before it waits, it hands out the rows before this one.
func pace(w *bufio.Writer, due time.Time) error {
	if time.Until(due) <= 0 {
		return nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	time.Sleep(max(time.Until(due), time.Millisecond))
	return nil
}
