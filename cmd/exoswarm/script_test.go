package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestScripts runs the scripts in testdata/script. Beside the commands of testscript they have:
//
//	nats [AUTH]              start a NATS server, with the file of its accounts; $NATS is its URL
//	exoswarm CODE ARG...     run the command in this process, which must exit with CODE; it gets
//	                         --nats $NATS unless its arguments name a server
//	auth CODE ARG...         exoswarm auth with --dir $WORK/auth
//	as USER CODE ARG...      exoswarm with the credentials of a user in $WORK/auth
//	until REGEXP COMMAND     run exoswarm or as until its output matches
//	worker NAME [USER]       start a worker of pool cpu that doubles numbers and waits
//	stop NAME                stop a worker
//	gateway USER             start a gateway
//	context USER FILE        write a context of the nats tool
//	repeat N FROM TO         write a file N times into another
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			s := &scene{t: t, workers: map[string]func(){}}
			env.Values[sceneKey{}] = s
			env.Defer(s.close)
			lastYear := time.Now().Add(time.Hour).UTC().Year() - 1 // of a New Year in Berlin
			env.Setenv("LASTYEAR", strconv.Itoa(lastYear))
			env.Setenv("INAMONTH", time.Now().Add(720*time.Hour).UTC().Format("2006-01"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"nats":     plain((*scene).nats),
			"exoswarm": plain((*scene).exoswarm),
			"auth":     plain((*scene).auth),
			"as":       plain((*scene).as),
			"until":    plain((*scene).until),
			"worker":   plain((*scene).worker),
			"stop":     plain(func(s *scene, ts *testscript.TestScript, args []string) { s.workers[args[0]]() }),
			"gateway":  plain((*scene).gateway),
			"context":  plain((*scene).context),
			"repeat":   plain((*scene).repeat),
		},
	})
}

type sceneKey struct{}

// scene is what a script has started.
type scene struct {
	t       *testing.T
	url     string
	workers map[string]func()
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
	_, _ = ts.Stdout().Write([]byte(stdout))
	_, _ = ts.Stderr().Write([]byte(stderr))
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	return stdout
}

// reaching adds the server to arguments that name none.
func (s *scene) reaching(args []string) []string {
	if s.url == "" || slices.Contains(args, "--nats") || slices.Contains(args, "--nats-context") {
		return args
	}
	return append(slices.Clone(args), "--nats", s.url)
}

func (s *scene) exoswarm(ts *testscript.TestScript, args []string) { s.expect(ts, s.reaching(args)) }

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
	g, err := s.connect(ts, args[0]).Serve(jobstest.Quiet)
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
