package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// serveNATS is the process of the server. It prints its address, and ends with its standard input.
func serveNATS(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the streams")
	name := flags.String("name", "", "name in a cluster")
	port := flags.Int("cluster", 0, "port for the other servers of a cluster")
	routes := flags.String("routes", "", "ports of the others, with commas between")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := server.Options{Dir: *dir, Name: *name, ClusterPort: *port}
	if *routes != "" {
		o.Routes = strings.Split(*routes, ",")
	}
	srv, err := server.Start(ctx, o)
	if err != nil {
		return err
	}
	defer srv.Close()
	fmt.Println(srv.URL())
	ended(ctx)
	return nil
}

// serveAgent is the process of the GPU agent, with the host device on all cores.
func serveAgent(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	url := flags.String("nats", "", "address of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: *url, Name: "agent", Logger: log})
	if err != nil {
		return err
	}
	defer conn.Close()
	dev, err := host.Open(host.Options{Logger: log, Requested: "host", Reason: "a measurement"})
	if err != nil {
		return err
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Shared: true, Queue: conn.Swarms, Logger: log, LeaseTTL: time.Minute,
	})
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	fmt.Println("serving")
	ended(ctx)
	for stage, of := range spansOf(gpuagents.ViewsOf(agent).Spans(time.Time{})) {
		name := strings.ReplaceAll(stage.String(), " ", "-")
		fmt.Printf("%s %d %d %d\n", name, of.n, of.took.Nanoseconds(), of.entries)
	}
	agent.Stop()
	return dev.Close()
}

// spans counts the runs of a stage and their entries, and sums their times.
type spans struct {
	n       int64
	entries uint64
	took    time.Duration
}

func spansOf(all []gpubatch.Span) map[gpubatch.Stage]spans {
	sums := map[gpubatch.Stage]spans{}
	for _, s := range all {
		of := sums[s.Stage]
		of.n, of.took, of.entries = of.n+1, of.took+s.Took, of.entries+s.Last-s.First+1
		sums[s.Stage] = of
	}
	return sums
}

func ended(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin) // any error ends it too
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
	said  string // its first line
	last  []byte // the other lines, after close
}

// spawn starts a role and waits for its first line. The caller ends it with close.
func spawn(ctx context.Context, role string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{role}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: in, out: bufio.NewReader(out)}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", role, err), c.close())
	}
	c.said = strings.TrimSpace(line)
	return c, nil
}

func (c *child) close() error {
	_ = c.stdin.Close() // the process ends by that
	slow := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer slow.Stop()
	var err error
	c.last, err = io.ReadAll(c.out)
	return errors.Join(err, c.cmd.Wait())
}

// worked returns the processor time of a process so far, in steps of 10 ms. It is 0 where /proc is
// not.
func worked(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// Fields 14 and 15 are the times in user and system mode; field 2 may hold spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
