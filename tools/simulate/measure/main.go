// Command measure measures the stages of a cluster alone, and whole clusters under load, for the
// simulator. It writes stages.times and runs.times into a folder. The cluster is three processes,
// which are this command again: a NATS server that syncs each message, a GPU agent on the host
// device, and the writers and readers of the logs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "server":
			return serveNATS(ctx, args[1:])
		case "agent":
			return serveAgent(ctx, args[1:])
		case "burn":
			return burn(ctx, args[1:])
		}
	}
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	out := flags.String("out", ".", "folder for stages.times and runs.times")
	dir := flags.String("dir", "", "folder for the streams; empty: a temporary one")
	each := flags.Duration("each", 700*time.Millisecond, "time for each series of a stage")
	length := flags.Duration("run", 6*time.Second, "measured time of each run of a cluster")
	rows := flags.Int("rows", 60_000, "largest entry in rows; smaller ones have a sixth and a sixtieth")
	shards := flags.Int("shards", 4, "most shards of a run: 1, 2, 4, 8 or 16")
	stages := flags.Bool("stages", true, "measure the stages")
	runs := flags.Bool("runs", true, "measure the runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *rows < 60 || *rows > 65_536 || *shards < 1 || *shards > 16 || *each <= 0 || *length <= 0 {
		return errors.New("use -rows from 60 to 65536, -shards from 1 to 16, positive times and no further arguments")
	}
	scratch, err := os.MkdirTemp(*dir, "measure-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // scratch files alone
	m := &measurement{
		ctx: ctx, dir: scratch, each: *each, length: *length,
		rows: []int{*rows / 60, *rows / 6, *rows}, shards: *shards,
		header: map[string]string{
			"machine": machine(), "command": "measure " + strings.Join(args, " "),
			"date": time.Now().UTC().Format("2006-01-02"), "disk": filesystem(scratch),
		},
	}
	if *stages {
		err = m.save(filepath.Join(*out, "stages.times"), m.stages)
	}
	if *runs && err == nil {
		err = m.save(filepath.Join(*out, "runs.times"), m.runs)
	}
	return err
}

type measurement struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the command
	dir    string          // scratch
	each   time.Duration   // for each series of a stage
	length time.Duration   // of each run
	rows   []int           // of entries
	shards int             // most shards of a run
	header map[string]string
	series []times.Series
}

func (m *measurement) add(name string, keys map[string]float64, h times.Histogram) {
	m.series = append(m.series, times.Series{Name: name, Keys: keys, Times: h})
	fmt.Printf("%-10s n=%-6d mean=%-12s p50=%-12s p99=%-12s %v\n", name, h.N(), time.Duration(h.Mean()),
		time.Duration(h.Quantile(0.5)), time.Duration(h.Quantile(0.99)), keys)
}

// save measures and writes what there is, also after an error.
func (m *measurement) save(file string, measure func() error) error {
	m.series = nil
	err := measure()
	f, cerr := os.Create(file)
	if cerr != nil {
		return errors.Join(err, cerr)
	}
	werr := (&times.File{Header: m.header, Series: m.series}).Write(f)
	return errors.Join(err, werr, f.Close())
}

// machine describes the processors.
func machine() string {
	name := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), name, runtime.Version())
}

// filesystem describes where the streams are: the number of the kind of file system, as of statfs.
func filesystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("kind %#x, %d GiB free", s.Type, s.Bavail*uint64(s.Bsize)>>30)
}
