// Command record makes the example data: it samples counters under /proc of this Linux machine while load of its own
// making comes and goes, and writes one CSV file a series plus incidents.json, the times at which it broke the pattern
// on purpose.
//
//	go run ./examples/telemetry/record --out examples/telemetry/data --rows 4800 --interval 250ms
//
// It uses at most two cores, 300 MB of memory, one scratch file of 64 MB that it removes, and loopback TCP; it ends by
// itself after rows*interval.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	out := flag.String("out", "examples/telemetry/data", "folder for the CSV files")
	rows := flag.Int("rows", 4800, "rows a series")
	interval := flag.Duration("interval", 250*time.Millisecond, "time between two rows")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := record(ctx, *out, *rows, *interval); err != nil {
		log.Fatal(err)
	}
}

// sample is one reading; counters grow, gauges stand for themselves.
type sample struct {
	busy, total                 float64 // jiffies
	switches, interrupts, forks float64
	faults                      float64
	wroteKB, loopKB             float64
	memoryMB                    float64
}

// series are the files that record writes; each turns two consecutive samples into a value.
var series = []struct {
	name  string
	value func(a, b sample, seconds float64) float64
}{
	{"cpu_busy_percent", func(a, b sample, _ float64) float64 { return 100 * (b.busy - a.busy) / math.Max(b.total-a.total, 1) }},
	{"context_switches_per_s", func(a, b sample, s float64) float64 { return (b.switches - a.switches) / s }},
	{"interrupts_per_s", func(a, b sample, s float64) float64 { return (b.interrupts - a.interrupts) / s }},
	{"page_faults_per_s", func(a, b sample, s float64) float64 { return (b.faults - a.faults) / s }},
	{"disk_written_kb_per_s", func(a, b sample, s float64) float64 { return (b.wroteKB - a.wroteKB) / s }},
	{"loopback_kb_per_s", func(a, b sample, s float64) float64 { return (b.loopKB - a.loopKB) / s }},
	{"memory_used_mb", func(_, b sample, _ float64) float64 { return b.memoryMB }},
	{"processes_started_per_s", func(a, b sample, s float64) float64 { return (b.forks - a.forks) / s }},
}

func record(ctx context.Context, out string, rows int, interval time.Duration) (err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	load, err := startLoad(ctx, time.Duration(rows)*interval)
	if err != nil {
		return err
	}
	defer load.stop()
	files := make([]*bufio.Writer, len(series))
	for i, s := range series {
		f, cerr := os.Create(filepath.Join(out, s.name+".csv"))
		if cerr != nil {
			return cerr
		}
		w := bufio.NewWriter(f)
		defer func() {
			if e := w.Flush(); err == nil {
				err = e
			}
			if e := f.Close(); err == nil {
				err = e
			}
		}()
		files[i] = w
		fmt.Fprintln(w, "timestamp,value")
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	before, err := read()
	if err != nil {
		return err
	}
	at := time.Now()
	for row := range rows {
		var now time.Time
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		after, err := read()
		if err != nil {
			return err
		}
		for i, s := range series {
			v := s.value(before, after, now.Sub(at).Seconds())
			fmt.Fprintf(files[i], "%s,%s\n", now.UTC().Format("2006-01-02 15:04:05.000"), strconv.FormatFloat(v, 'f', 2, 64))
		}
		before, at = after, now
		if row%240 == 0 {
			log.Printf("row %d of %d", row, rows)
		}
	}
	incidents, err := json.MarshalIndent(load.incidents, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(filepath.Clean(out)), "incidents.json"), append(incidents, '\n'), 0o644)
}

// read takes one sample from /proc.
func read() (sample, error) {
	var s sample
	err := lines("/proc/stat", func(f []string) {
		switch f[0] {
		case "cpu":
			for i, v := range f[1:] {
				n := number(v)
				s.total += n
				if i != 3 && i != 4 { // idle, iowait
					s.busy += n
				}
			}
		case "ctxt":
			s.switches = number(f[1])
		case "intr":
			s.interrupts = number(f[1])
		case "processes":
			s.forks = number(f[1])
		}
	})
	if err != nil {
		return s, err
	}
	if err := lines("/proc/vmstat", func(f []string) {
		if f[0] == "pgfault" {
			s.faults = number(f[1])
		}
	}); err != nil {
		return s, err
	}
	if err := lines("/proc/diskstats", func(f []string) {
		if len(f) > 9 && !strings.HasPrefix(f[2], "loop") && !strings.HasPrefix(f[2], "ram") {
			s.wroteKB += number(f[9]) / 2 // sectors of 512 bytes
		}
	}); err != nil {
		return s, err
	}
	if err := lines("/proc/net/dev", func(f []string) {
		if f[0] == "lo:" {
			s.loopKB = number(f[1]) / 1024
		}
	}); err != nil {
		return s, err
	}
	var total, available float64
	if err := lines("/proc/meminfo", func(f []string) {
		switch f[0] {
		case "MemTotal:":
			total = number(f[1])
		case "MemAvailable:":
			available = number(f[1])
		}
	}); err != nil {
		return s, err
	}
	s.memoryMB = (total - available) / 1024
	return s, nil
}

func lines(path string, each func(fields []string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			each(f)
		}
	}
	return nil
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return v
}

// Incident is a stretch of time in which the load broke its pattern on purpose.
type Incident struct {
	What  string    `json:"what"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
}

// load is what runs beside the sampling: four patterns that repeat, and incidents that break them.
type load struct {
	cancel    context.CancelFunc
	running   sync.WaitGroup
	scratch   string
	listener  net.Listener
	incidents []Incident

	runaway, silence, leak, flood, storm atomic.Bool
}

func startLoad(parent context.Context, length time.Duration) (*load, error) {
	ctx, cancel := context.WithTimeout(parent, length+time.Minute)
	l := &load{cancel: cancel}
	f, err := os.CreateTemp("", "record-*.bin")
	if err != nil {
		cancel()
		return nil, err
	}
	l.scratch = f.Name()
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		cancel()
		f.Close()
		os.Remove(l.scratch)
		return nil, err
	}
	start := time.Now()
	since := func() float64 { return time.Since(start).Seconds() }
	// Each incident sits at a fixed part of the recording, off the rhythm of the patterns.
	for _, in := range []struct {
		at, seconds float64
		what        string
		flag        *atomic.Bool
	}{
		{0.34, 14, "a process runs away and takes the idle core", &l.runaway},
		{0.47, 18, "clients fall silent", &l.silence},
		{0.60, 25, "memory leaks", &l.leak},
		{0.74, 12, "a writer floods the disk", &l.flood},
		{0.88, 10, "thousands of short wake-ups", &l.storm},
	} {
		begin := start.Add(time.Duration(in.at * float64(length)))
		end := begin.Add(time.Duration(in.seconds * float64(time.Second)))
		l.incidents = append(l.incidents, Incident{in.what, begin.UTC(), end.UTC()})
		l.run(func() {
			if sleep(ctx, time.Until(begin)) {
				in.flag.Store(true)
				sleep(ctx, time.Until(end))
				in.flag.Store(false)
			}
		})
	}
	l.run(func() { // a batch computation: 6 of every 30 seconds, 40 % of one core, plus the runaway
		for ctx.Err() == nil {
			duty := 0.04
			if math.Mod(since(), 30) < 6 {
				duty = 0.40
			}
			if l.runaway.Load() {
				duty = 1
			}
			spin(ctx, 20*time.Millisecond, duty)
		}
	})
	l.run(func() { // a log writer: a burst every 10 seconds, synced
		defer f.Close()
		block := make([]byte, 1<<20)
		for n := 0; sleep(ctx, 100*time.Millisecond); n++ {
			mb := 0
			if n%100 == 0 {
				mb = 8
			}
			if l.flood.Load() {
				mb = 4
			}
			for i := range mb {
				if _, err := f.WriteAt(block, int64((n+i)%64)<<20); err != nil {
					return
				}
			}
			if mb > 0 {
				_ = f.Sync()
			}
		}
	})
	l.run(func() { // a server that reads what clients send
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			l.run(func() { _, _ = io.Copy(io.Discard, c); c.Close() })
		}
	})
	l.run(func() { // clients: traffic that swings with a period of 40 seconds
		c, err := net.Dial("tcp", l.listener.Addr().String())
		if err != nil {
			return
		}
		defer c.Close()
		chunk := make([]byte, 16<<10)
		for sleep(ctx, 10*time.Millisecond) {
			n := int(4 + 3.5*math.Sin(2*math.Pi*since()/40))
			if l.silence.Load() {
				n = 0
			}
			for range n {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		}
	})
	l.run(func() { // a cache: fills for 50 seconds, is dropped, and fills again; a leak adds to it
		cache, leaked := make([][]byte, 0, 100), [][]byte(nil)
		for n := 0; sleep(ctx, 500*time.Millisecond); n++ {
			if n%100 == 0 {
				clear(cache[:cap(cache)])
				cache = cache[:0]
			}
			cache = append(cache, touched(1<<20))
			if l.leak.Load() {
				leaked = append(leaked, touched(4<<20))
			} else {
				leaked = nil
			}
		}
		runtime.KeepAlive(cache)
		runtime.KeepAlive(leaked)
	})
	l.run(func() { // the storm
		for sleep(ctx, 10*time.Millisecond) {
			for l.storm.Load() && ctx.Err() == nil {
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	return l, nil
}

func (l *load) run(fn func()) {
	l.running.Add(1)
	go func() { defer l.running.Done(); fn() }()
}

func (l *load) stop() {
	l.cancel()
	l.listener.Close()
	l.running.Wait()
	os.Remove(l.scratch)
}

func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return b
}

// spin keeps one core busy for a share of the period.
func spin(ctx context.Context, period time.Duration, duty float64) {
	end := time.Now().Add(time.Duration(duty * float64(period)))
	for time.Now().Before(end) && ctx.Err() == nil { //nolint:revive // burning time is the point
	}
	sleep(ctx, time.Duration((1-duty)*float64(period)))
}

// sleep waits for d and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
