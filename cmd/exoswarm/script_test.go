package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestScripts runs the scripts in testdata/script. Beside the commands of testscript they have:
//
//	nats [AUTH]              start a NATS server, with the file of its accounts; $NATS is its URL
//	exoswarm CODE ARG...     run the command in this process, which must exit with CODE; it gets
//	                         --nats $NATS unless its arguments name a server
//	auth CODE ARG...         exoswarm auth with --dir $WORK/auth
//	as USER CODE ARG...      exoswarm with the credentials of a user in $WORK/auth
//	until REGEXP COMMAND     run exoswarm or as until its output matches
//	local CODE ARG...        exoswarm without --nats
//	refused CODE TEXT ARG... run exoswarm, which must exit with CODE and write one line with TEXT to stderr
//	worker NAME [USER]       start a worker of pool cpu that doubles numbers and waits
//	gpuagent NAME [PLACE [KEY]]  start a GPU agent on the host device, with a folder for snapshots,
//	                         which the file KEY encrypts
//	gpuprocess NAME ARG...   start the process of a GPU agent on the host device, with further arguments
//	cpuagent NAME            start a CPU agent for runs and detectors, whose root dir is $WORK
//	push NAME FILE           push the rows of a file of NDJSON
//	lease NAME SWARM SHARD   take the lease of a shard, and answer nothing
//	end NAME                 stop a worker or a GPU agent, or give a lease back (stop is a command
//	                         of testscript, which ends the script)
//	append SWARM SHARD KIND DATA  append an entry to the log of one shard
//	begins SWARM SHARD N     entry N is the first one of both logs of a shard
//	delete SWARM             exoswarm swarm delete --yes, which must leave no log of up to 7 shards
//	keep NAME REGEXP         set $NAME to the first group of a match in the last output
//	least NUMBER MIN         the number must be MIN or more
//	flip FILE                flip the last bit of a file
//	gateway USER             start a gateway
//	context USER FILE        write a context of the nats tool
//	repeat N FROM TO         write a file N times into another
//	edges N AGENTS FILE      write edges between random agents
//	array ROWS COLUMNS FILE  write a .npy file of random numbers
//	process NAME DIR ARG...  start a GPU agent as a process, with its data in a folder; end is a kill -9
//	programs                 exec exoswarm is the real program from now on
//	serve DIR ARG...         start exoswarm serve in a folder, as a process on free ports, with further
//	                         arguments, and programs; end serve ends it
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			s := &scene{t: t, workers: map[string]func(){}}
			env.Values[sceneKey{}] = s
			env.Defer(s.close)
			lastYear := time.Now().Add(time.Hour).UTC().Year() - 1 // of a New Year in Berlin
			env.Setenv("LASTYEAR", strconv.Itoa(lastYear))
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", examples)
			models := filepath.Join(examples, "..", "gpuagents", "model", "testdata")
			env.Setenv("TRAINED", filepath.Join(models, "gru.safetensors"))
			env.Setenv("ITEMS", filepath.Join(models, "items.safetensors"))
			env.Setenv("MODELS", filepath.Join(models, "..", "modeltest"))
			// Priorities rise by 1 from the leader of round 9, modulo the 200,000 agents.
			behind := math.MaxUint32 - agents.Priority(1, 9, 200_000, 0)
			env.Setenv("LEADER", strconv.FormatUint(uint64((200_000-behind)%200_000), 10))
			env.Setenv("INAMONTH", time.Now().Add(720*time.Hour).UTC().Format("2006-01"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"nats":       plain((*scene).nats),
			"exoswarm":   plain((*scene).exoswarm),
			"auth":       plain((*scene).auth),
			"as":         plain((*scene).as),
			"until":      plain((*scene).until),
			"worker":     plain((*scene).worker),
			"end":        plain(func(s *scene, ts *testscript.TestScript, args []string) { s.workers[args[0]]() }),
			"local":      plain(func(s *scene, ts *testscript.TestScript, args []string) { s.expect(ts, args) }),
			"refused":    plain((*scene).refused),
			"gpuagent":   plain((*scene).gpuagent),
			"gpuprocess": plain((*scene).gpuprocess),
			"cpuagent":   plain((*scene).cpuagent),
			"push":       plain((*scene).push),
			"lease":      plain((*scene).lease),
			"append":     plain((*scene).append),
			"begins":     plain((*scene).begins),
			"delete":     plain((*scene).delete),
			"keep":       plain((*scene).keep),
			"least":      plain((*scene).least),
			"flip":       plain((*scene).flip),
			"gateway":    plain((*scene).gateway),
			"context":    plain((*scene).context),
			"repeat":     plain((*scene).repeat),
			"edges":      plain((*scene).edges),
			"array":      plain((*scene).array),
			"serve":      plain((*scene).serve),
			"process":    plain((*scene).process),
			"programs":   plain((*scene).programs),
		},
	})
}

type sceneKey struct{}

// scene is what a script has started.
type scene struct {
	t       *testing.T
	url     string
	workers map[string]func() // end what has a name
	last    string            // output of the last command
	closers []func()
}

func (s *scene) close() {
	for _, c := range slices.Backward(s.closers) {
		c()
	}
}

// plain makes a command of a method that fails the script by itself and knows no negation.
func plain(f func(s *scene, ts *testscript.TestScript, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command takes no !: it names the exit code")
		}
		f(ts.Value(sceneKey{}).(*scene), ts, args)
	}
}

func (s *scene) nats(ts *testscript.TestScript, args []string) {
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "nats-")
	ts.Check(err)
	o := server.Options{Dir: dir}
	if len(args) > 0 {
		o.Auth = ts.MkAbs(args[0])
	}
	srv, err := server.Start(context.Background(), o)
	ts.Check(err)
	s.closers = append(s.closers, srv.Close)
	s.url = srv.URL()
	ts.Setenv("NATS", s.url)
}

// run runs a command and returns its exit code and output.
func (s *scene) run(args []string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = command.Run(context.Background(), cmd, &errs)
	return code, out.String(), errs.String()
}

// expect runs a command that must exit with the code in the first argument.
func (s *scene) expect(ts *testscript.TestScript, args []string) (stdout string) {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("write the exit code first: %v", err)
	}
	code, stdout, stderr := s.run(args[1:])
	s.last = stdout
	_, _ = ts.Stdout().Write([]byte(stdout))
	_, _ = ts.Stderr().Write([]byte(stderr))
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	return stdout
}

// reaching adds the server to arguments that name none, and a timeout for slow machines to commands
// that wait for a swarm.
func (s *scene) reaching(args []string) []string {
	if s.url == "" || slices.Contains(args, "--nats") || slices.Contains(args, "--nats-context") ||
		args[1] == "snapshot" || args[1] == "model" {
		return args
	}
	args = append(slices.Clone(args), "--nats", s.url)
	if args[1] == "swarm" && !slices.Contains(args, "--timeout") &&
		!slices.Contains([]string{"list", "delete", "orphans"}, args[2]) {
		args = append(args, "--timeout", "5m")
	}
	return args
}

func (s *scene) exoswarm(ts *testscript.TestScript, args []string) { s.expect(ts, s.reaching(args)) }

func (s *scene) refused(ts *testscript.TestScript, args []string) {
	code, _, stderr := s.run(s.reaching(slices.Concat(args[:1], args[2:]))[1:])
	if strconv.Itoa(code) != args[0] || !strings.Contains(stderr, args[1]) || strings.Count(stderr, "\n") != 1 {
		ts.Fatalf("exit code %d, want %s and one line with %q, not\n%s", code, args[0], args[1], stderr)
	}
}

func (s *scene) auth(ts *testscript.TestScript, args []string) {
	s.expect(ts, slices.Concat(args[:1], []string{"auth"}, args[1:], []string{"--dir", ts.MkAbs("auth")}))
}

// login are the flags of a user.
func login(ts *testscript.TestScript, user string) []string {
	return []string{"--nats-creds", credentials(ts, user)}
}

func credentials(ts *testscript.TestScript, user string) string {
	return ts.MkAbs(filepath.Join("auth", "creds", user+".creds"))
}

func (s *scene) as(ts *testscript.TestScript, args []string) {
	s.expect(ts, s.reaching(append(slices.Clone(args[1:]), login(ts, args[0])...)))
}

func (s *scene) until(ts *testscript.TestScript, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	command := s.reaching(args[2:])
	if args[1] == "as" {
		command = s.reaching(append(slices.Clone(args[3:]), login(ts, args[2])...))
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		code, stdout, stderr := s.run(command[1:])
		if strconv.Itoa(code) == command[0] && want.MatchString(stdout) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("exit code %d, and no match for %q in\n%s%s", code, args[0], stdout, stderr)
		}
	}
}

// connect connects as a user, or without a login.
func (s *scene) connect(ts *testscript.TestScript, user string) *natsq.Conn {
	o := natsconn.Options{URL: s.url}
	if user != "" {
		o.Credentials = credentials(ts, user)
	}
	conn, err := natsq.Connect(context.Background(), o)
	ts.Check(err)
	s.closers = append(s.closers, conn.Close)
	return conn
}

func (s *scene) worker(ts *testscript.TestScript, args []string) {
	user := ""
	if len(args) > 1 {
		user = args[1]
	}
	conn := s.connect(ts, user)
	w, err := conn.Work(context.Background(), natsq.WorkerOptions{
		Name: args[0], Pool: jobs.PoolCPU, Concurrency: 16, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"double": double, "wait": wait},
	})
	ts.Check(err)
	s.workers[args[0]] = w.Stop
	s.closers = append(s.closers, w.Stop)
	started := time.Now()
	entry, err := conn.Registry.Announce(context.Background(), func() jobs.Agent {
		return jobs.Agent{
			Name: args[0], Pool: jobs.PoolCPU, Kinds: []string{"double"}, Concurrency: 16, State: "serving",
			Started: started,
		}
	}, jobstest.Quiet)
	ts.Check(err)
	s.closers = append(s.closers, func() { _ = entry.Close(context.Background()) })
}

func (s *scene) cpuagent(ts *testscript.TestScript, args []string) {
	conn := s.connect(ts, "")
	scratch, err := os.MkdirTemp(ts.Getenv("WORK"), "scratch-")
	ts.Check(err)
	f, err := files.New(files.Options{
		Roots: map[files.Root]string{{Name: "dir"}: ts.Getenv("WORK")}, Objects: conn.Objects, Scratch: scratch,
	})
	ts.Check(err)
	s.closers = append(s.closers, func() { _ = f.Close() })
	streamer, err := cpuagents.New(cpuagents.Options{Queue: conn.StreamJobs(), Files: f, Logger: jobstest.Quiet})
	ts.Check(err)
	w, err := conn.Work(context.Background(), natsq.WorkerOptions{
		Name: args[0], Pool: jobs.PoolCPU, Concurrency: 4, Logger: jobstest.Quiet, Handlers: map[string]jobs.Handler{
			cpuagents.KindStream: streamer.Handle, cpuagents.KindDetector: streamer.HandleDetector,
		},
	})
	ts.Check(err)
	s.workers[args[0]] = w.Stop
	s.closers = append(s.closers, w.Stop)
}

func (s *scene) push(ts *testscript.TestScript, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	_, err = s.connect(ts, "").Streams.Push(context.Background(), args[0], "", [][]byte{data})
	ts.Check(err)
}

// double is the handler of jobs whose spec is a number.
func double(ctx context.Context, j jobs.Job, progress func(any)) (any, error) {
	jobs.Logger(ctx).Info("doubling")
	progress("half way")
	var n int
	if err := json.Unmarshal(j.Spec, &n); err != nil {
		return nil, jobs.Errorf(jobs.CodeInput, "the spec %s is not a number", j.Spec)
	}
	return 2 * n, nil
}

// wait is the handler of jobs that run until they are cancelled.
func wait(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (s *scene) gateway(ts *testscript.TestScript, args []string) {
	via := s.connect(ts, args[0])
	g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
	ts.Check(err)
	s.closers = append(s.closers, g.Close)
}

func (s *scene) context(ts *testscript.TestScript, args []string) {
	data, err := json.Marshal(map[string]string{"url": s.url, "creds": credentials(ts, args[0])})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), data, 0o600))
}

func (s *scene) repeat(ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), bytes.Repeat([]byte(ts.ReadFile(args[1])), n), 0o600))
}

func (s *scene) edges(ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	agents, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(5, 3))
	for range n {
		fmt.Fprintf(&b, "%d,%d\n", r.IntN(agents), r.IntN(agents))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b.Bytes(), 0o600))
}

func (s *scene) array(ts *testscript.TestScript, args []string) {
	var shape [2]int64
	for i := range shape {
		var err error
		shape[i], err = strconv.ParseInt(args[i], 10, 64)
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), randomArray(shape[0], shape[1]), 0o600))
}

func (s *scene) gpuagent(ts *testscript.TestScript, args []string) {
	conn := s.connect(ts, "")
	quiet := slog.New(slog.DiscardHandler)
	dev, err := cuda.Open(context.Background(), "host", cuda.Options{MemoryLimit: 64 << 20, Logger: quiet})
	ts.Check(err)
	// A lease of an hour ends with its agent alone, however busy the machine is.
	o := gpuagents.Options{Name: args[0], Device: dev, Queue: conn.Swarms, Logger: quiet, LeaseTTL: time.Hour}
	closePlace := func() error { return nil }
	if len(args) > 1 {
		b, err := bucket.Open(context.Background(), args[1])
		ts.Check(err)
		o.Snapshots, closePlace = b, b.Close
		if len(args) > 2 {
			keys, err := keyring.Read(args[2])
			ts.Check(err)
			o.Snapshots = bucket.Seal(b, keys)
		}
	}
	agent, err := gpuagents.Start(o)
	ts.Check(err)
	stop := sync.OnceFunc(func() {
		agent.Stop()
		if err := errors.Join(dev.Close(), closePlace()); err != nil { // a leak of the agent is an error of the device
			s.t.Errorf("stop %s: %v", args[0], err)
		}
	})
	s.workers[args[0]] = stop
	s.closers = append(s.closers, stop)
}

func (s *scene) serve(ts *testscript.TestScript, args []string) {
	data := filepath.Join(ts.MkAbs(args[0]), command.ServeFolder)
	p, _ := startProcess(s.t, "the dashboard is ready", filepath.Join(binaries(s.t), "exoswarm"), append([]string{
		"serve", "--data-dir", data, "--nats-port", "0", "--listen", "127.0.0.1:0", "--device", "host",
	}, args[1:]...)...)
	s.workers["serve"] = sync.OnceFunc(func() { p.end(s.t, syscall.SIGTERM) })
	s.closers = append(s.closers, s.workers["serve"])
	testkit.Until(s.t, "the addresses of serve", func() bool {
		_, err := os.Stat(filepath.Join(data, "addresses.json"))
		return err == nil
	})
	s.programs(ts, nil)
}

func (s *scene) programs(ts *testscript.TestScript, _ []string) {
	ts.Setenv("PATH", binaries(s.t)+string(os.PathListSeparator)+ts.Getenv("PATH"))
}

func (s *scene) process(ts *testscript.TestScript, args []string) {
	p, _ := startProcess(s.t, "gpuagent is ready", filepath.Join(binaries(s.t), "gpuagent"), append([]string{
		"--nats", s.url, "--data-dir", ts.MkAbs(args[1]), "--device", "host", "--name", args[0], "--lease-ttl", "1s",
	}, args[2:]...)...)
	s.workers[args[0]] = sync.OnceFunc(func() { p.end(s.t, syscall.SIGKILL) })
	s.closers = append(s.closers, s.workers[args[0]])
}

func (s *scene) gpuprocess(ts *testscript.TestScript, args []string) {
	cmd := gpuprocess.Command()
	cmd.SetArgs(append([]string{
		"--nats", s.url, "--device", "host", "--name", args[0], "--log-level", "error", "--memory", "1073741824",
	}, args[1:]...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, command.ErrInterrupted) {
			s.t.Errorf("stop %s: %v", args[0], err)
		}
	})
	s.workers[args[0]] = stop
	s.closers = append(s.closers, stop)
}

// swarm returns the record of a swarm.
func (s *scene) swarm(ts *testscript.TestScript, conn *natsq.Conn, id string) swarms.Swarm {
	record, err := conn.Swarms.Swarm(context.Background(), id)
	ts.Check(err)
	return record
}

// log returns a log of the shard whose swarm and number are the first arguments.
func (s *scene) log(ts *testscript.TestScript, args []string, d swarms.Direction) swarms.Log {
	conn := s.connect(ts, "")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	return conn.Swarms.Log(s.swarm(ts, conn, args[0]).Key(), n, d)
}

func (s *scene) lease(ts *testscript.TestScript, args []string) {
	conn := s.connect(ts, "")
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	session, err := conn.Swarms.OpenSession(context.Background(), args[0], time.Hour, jobstest.Quiet)
	ts.Check(err)
	stop := sync.OnceFunc(func() {
		if err := session.Close(context.Background()); err != nil {
			s.t.Errorf("give the lease of %s back: %v", args[0], err)
		}
	})
	s.workers[args[0]] = stop
	s.closers = append(s.closers, stop)
	_, err = session.Acquire(context.Background(), swarms.LeaseKey(s.swarm(ts, conn, args[1]).Key(), n))
	ts.Check(err)
}

func (s *scene) append(ts *testscript.TestScript, args []string) {
	log := s.log(ts, args, swarms.In)
	last, err := log.Last(context.Background())
	ts.Check(err)
	ts.Check(log.Append(context.Background(), last.Seq, swarms.Entry{
		Kind: args[2], Ref: last.Ref + 1, Data: []byte(args[3]),
	}))
}

func (s *scene) begins(ts *testscript.TestScript, args []string) {
	first, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		log := s.log(ts, args, d)
		for seq := uint64(1); seq <= first; seq++ {
			r, err := log.Read(context.Background(), seq)
			ts.Check(err)
			e, err := r.Next(context.Background())
			r.Close()
			if there := err == nil && e.Seq == seq; there != (seq == first) {
				ts.Fatalf("log %v of shard %s: entry %d is there: %v, error %v; want %d as the first one", d, args[1],
					seq, there, err, first)
			}
		}
	}
}

func (s *scene) delete(ts *testscript.TestScript, args []string) {
	conn := s.connect(ts, "")
	key := s.swarm(ts, conn, args[0]).Key()
	s.expect(ts, s.reaching([]string{"0", "swarm", "delete", args[0], "--yes"}))
	for k := range 7 {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if _, err := conn.Swarms.Log(key, k, d).Last(context.Background()); !errors.Is(err, jobs.ErrNotFound) {
				ts.Fatalf("log %v of shard %d of %s: error %v, want that it is not found", d, k, args[0], err)
			}
		}
	}
}

func (s *scene) keep(ts *testscript.TestScript, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(s.last)
	if found == nil {
		ts.Fatalf("no match for %q in %s", args[1], s.last)
	}
	ts.Setenv(args[0], found[1])
}

func (s *scene) least(ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	if least, err := strconv.Atoi(args[1]); err != nil || n < least {
		ts.Fatalf("%d is less than %s, error %v", n, args[1], err)
	}
}

func (s *scene) flip(ts *testscript.TestScript, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	data[len(data)-1] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}
