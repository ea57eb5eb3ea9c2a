//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// Times of the programs. They are short enough for an hour to show ten of each.
const (
	cycle   = 300 * time.Second // of the load of the service
	batches = 30 * time.Second  // between two batches of the writer
	pause   = 50 * time.Millisecond
)

// work runs a role until in ends. Lines of in are settings: a name and a number.
func work(role string, in io.Reader, dir string) {
	settings := make(chan setting)
	go func() {
		defer close(settings)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var s setting
			if _, err := fmt.Sscan(lines.Text(), &s.name, &s.value); err != nil {
				log.Fatalf("%s: %q: %v", role, lines.Text(), err)
			}
			settings <- s
		}
	}()
	w := &worker{
		set: map[string]float64{"every": 1, "size": 1, "poll": 1, "cost": 1}, rng: rand.New(rand.NewPCG(1, 2)),
		began: time.Now(), file: filepath.Join(dir, fmt.Sprintf("record-%d", os.Getpid())),
	}
	defer os.Remove(w.file)
	step := map[string]func(){"service": w.service, "writer": w.writer, "cache": w.cache}[role]
	if step == nil {
		log.Fatalf("no role %q", role)
	}
	for {
		select {
		case s, open := <-settings:
			if !open {
				return
			}
			w.set[s.name] = s.value
		case <-time.After(w.pause()):
			step()
		}
	}
}

type setting struct {
	name  string
	value float64
}

// worker is the state of a program of any role. One goroutine uses it.
type worker struct {
	set   map[string]float64
	rng   *rand.Rand
	began time.Time

	sum   uint64  // of the work done, so that it is not optimised away
	owed  float64 // requests that are due
	last  time.Time
	file  string
	store [][]byte
	leaks [][]byte
}

func (w *worker) pause() time.Duration { return time.Duration(float64(pause) / w.set["poll"]) }

// service does the requests since its last step. Their rate rises and falls with the cycle, with
// noise.
func (w *worker) service() {
	now := time.Now()
	if w.last.IsZero() {
		w.last = now
	}
	since := min(now.Sub(w.last), time.Second)
	w.last = now
	phase := 2 * math.Pi * now.Sub(w.began).Seconds() / cycle.Seconds()
	if w.set["top"] == 1 {
		phase = math.Pi
	}
	rate := 4 + 28*(1-math.Cos(phase))/2
	w.owed += rate * since.Seconds() * (1 + 0.3*w.rng.NormFloat64())
	for ; w.owed >= 1; w.owed-- {
		for range int(1_200_000 * w.set["cost"]) {
			w.sum = w.sum*6364136223846793005 + 1442695040888963407
		}
	}
	if percent := w.set["loop"]; percent > 0 {
		for begin := time.Now(); time.Since(begin).Seconds() < since.Seconds()*percent/100; {
			w.sum++
		}
	}
}

// writer stores a batch when it is due, and a line of its log now and then.
func (w *worker) writer() {
	now := time.Now()
	if w.last.IsZero() {
		w.last = now
	}
	if w.rng.IntN(10) == 0 {
		w.write(100 + w.rng.IntN(400))
	}
	if n := w.set["every"]; n > 0 && now.Sub(w.last).Seconds() >= batches.Seconds()/n {
		w.last = now
		w.owed = w.set["size"] * (600 + 300*w.rng.Float64())
	}
	if n := min(w.owed, 20*w.set["size"]); n > 0 { // a batch takes two to three seconds
		w.owed -= n
		w.write(int(n * 1024))
	}
}

func (w *worker) write(n int) {
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(w.file); err == nil && info.Size() > 4<<20 {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(w.file, mode, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, n)); err != nil {
		log.Fatal(err)
	}
}

// cache keeps half a MiB more every two to four seconds, and drops all at 24 MiB. A leak adds a
// quarter of a MiB every second and is not dropped.
func (w *worker) cache() {
	now := time.Now()
	if w.set["leak"] == 0 && w.leaks != nil {
		w.leaks = nil
		debug.FreeOSMemory()
	}
	if w.set["leak"] == 1 && w.rng.IntN(20) == 0 {
		w.leaks = append(w.leaks, touched(1<<18))
	}
	if w.set["still"] == 1 || now.Sub(w.last) < 0 {
		return
	}
	w.last = now.Add(2*time.Second + time.Duration(w.rng.Float64()*2*float64(time.Second)))
	w.store = append(w.store, touched(1<<19))
	if len(w.store) > 48 {
		w.store = nil
		debug.FreeOSMemory()
	}
}

func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return b
}
