package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// marked makes a secret that is found wherever it comes out.
func marked(what string) string { return "s3cr3t-" + what + "-marker" }

// TestNoSecretComesOut plants secrets wherever one may stand and searches everything that comes out
// of real processes: logs, results, dead letters, tables, help, metrics and command lines.
func TestNoSecretComesOut(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin, dir := binaries(t), t.TempDir()
	token := marked("token")
	tokenFile := write(t, filepath.Join(dir, "token"), token)
	nats, plain := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir(), "--token-file", tokenFile)
	url := strings.Replace(plain, "nats://", "nats://"+token+"@", 1)
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, "FILE"), marked("file"))
	write(t, filepath.Join(secrets, "ACCOUNT"), `{"type":"service_account","private_key":"`+marked("gcs")+
		`","token_uri":"http://127.0.0.1:1/t"}`)
	for name, what := range map[string]string{
		"HEADER": "header", "SQL": "sql", "S3": "s3", "HOOK": "hook",
		"PUSH": "push",
	} {
		t.Setenv("EXOSWARM_SECRET_"+name, marked(what))
	}
	// The CPU agent has the URL on its command line, the GPU agent in its environment.
	cpu, _ := startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"), "--nats", url, "--secrets", secrets,
		"--egress", "127.0.0.0/8", "--metrics", "127.0.0.1:0", "--log-level", "debug",
		"--push-listen", "127.0.0.1:0", "--push-token", "p=env:PUSH")
	t.Setenv("NATS_URL", url)
	gpu, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--device", "host", "--metrics",
		"127.0.0.1:0", "--log-level", "debug", "--log-format", "json", "--memory-limit", "67108864",
		"--host-page-memory", "0", "--page-memory", "16777216")
	came := map[string]string{}
	for name, p := range map[string]*process{"nats": nats, "cpuagent": cpu, "gpuagent": gpu} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
		if err != nil {
			t.Fatalf("os.ReadFile: %v", err)
		}
		came["command line of "+name] = string(data)
		if name != "nats" {
			_, rest, _ := strings.Cut(p.log.String(), "serving metrics")
			_, at, ok := strings.Cut(rest, "http://")
			if !ok {
				t.Fatalf("no metrics:\n%s", p.log)
			}
			at, _, _ = strings.Cut(at, "/metrics")
			for _, path := range []string{"/metrics", "/healthz"} {
				came[path+" of "+name] = fetchText(t, "http://"+at+path)
			}
		}
	}
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: url, Name: "test"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer conn.Close()
	// Each source fails in its own way; nothing listens on the port.
	sources := map[string]source.Series{
		"user":  {URI: "https://me:" + marked("userinfo") + "@127.0.0.1:1/a.csv"},
		"query": {URI: "http://127.0.0.1:1/a.csv?key=" + marked("query"), HTTP: &source.HTTPSpec{Tries: 1}},
		"header": {
			URI: "http://127.0.0.1:1/a.csv",
			HTTP: &source.HTTPSpec{
				Tries:   1,
				Headers: map[string]string{"Authorization": "Bearer {env:HEADER}{file:FILE}"},
			},
		},
		"dsn": {URI: "postgres://me:" + marked("dsn") + "@127.0.0.1:1/db", SQL: &source.SQLSpec{Query: "select 1"}},
		"sql": {
			URI: "postgres://me@127.0.0.1:1/db",
			SQL: &source.SQLSpec{Query: "select 1", Password: "env:SQL", TLS: "disable"},
		},
		"s3": {
			URI: "s3://bucket/a",
			Object: &source.ObjectSpec{StoreSpec: remote.StoreSpec{
				Endpoint: "http://127.0.0.1:1", AccessKey: "env:S3",
				SecretKey: "env:S3",
			}},
		},
		"s3 user": {
			URI: "s3://bucket/a",
			Object: &source.ObjectSpec{StoreSpec: remote.StoreSpec{Endpoint: "http://me:" + marked("endpoint") +
				"@127.0.0.1:1"}},
		},
		"gcs": {
			URI: "gs://bucket/a",
			Object: &source.ObjectSpec{StoreSpec: remote.StoreSpec{
				Endpoint: "http://127.0.0.1:1",
				Account:  "file:ACCOUNT",
			}},
		},
		"missing": {URI: "object:none"},
	}
	n := 0
	for name, src := range sources {
		n++
		id := fmt.Sprint("job", n)
		src.Name = name
		manifest, err := json.Marshal([]source.Series{src})
		if err != nil {
			t.Fatalf("json.Marshal: %v", err)
		}
		if _, err := conn.Objects.PutObject(t.Context(), "m-"+id, jobs.Owner{Job: id},
			strings.NewReader(string(manifest))); err != nil {
			t.Fatalf("conn.Objects.PutObject: %v", err)
		}
		spec, err := json.Marshal(cpuagents.StreamSpec{
			Name: "n", Spec: json.RawMessage("{}"), Candidates: []string{"a", "b"},
			Columns: rows.ColumnSpec{Timestamp: "t", Features: []string{"v"}}, Manifest: "object:m-" + id,
			Output: "object:o-" + id, Rejects: "object:r-" + id, Summary: "object:s-" + id,
			Webhook: &sink.WebhookSpec{URL: "http://127.0.0.1:1/hook?token=" + marked("webhook"), Secret: "env:HOOK"},
		})
		if err != nil {
			t.Fatalf("json.Marshal: %v", err)
		}
		j := jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: spec,
			Submitted: time.Now().UTC(), MaxAttempts: 1, Deadline: time.Now().Add(20 * time.Second),
		}
		if err := conn.Queue.Submit(t.Context(), j); err != nil {
			t.Fatalf("conn.Queue.Submit: %v", err)
		}
	}
	for i := range n {
		r, err := conn.Results.Result(t.Context(), fmt.Sprint("job", i+1))
		if err != nil {
			t.Fatalf("conn.Results.Result: %v", err)
		}
		data, err := json.Marshal(r)
		if err != nil || r.Error == nil {
			t.Fatalf("result %s, error %v; want a failed job", data, err)
		}
		t.Logf("%s: %v", r.JobID, r.Error)
		came["result of "+r.JobID] = string(data)
	}
	// without the job, which is the submitter's own text
	if err := conn.Letters.List(t.Context(), jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
		came["dead letter of "+d.ID] = fmt.Sprint(d.Reason, d.Worker)
		return true
	}); err != nil {
		t.Fatalf("conn.Queue.DeadLetters: %v", err)
	}
	// Commands, with the URL in the environment.
	for _, line := range []string{
		"agent list -o json", "agent list", "queue stats", "object list -o yaml", "dlq list",
		"job get job1 -o json", "job logs job1", "init",
	} {
		code, stdout, stderr := exec(t.Context(), t, strings.Fields(line)...)
		came[line] = fmt.Sprint(code, stdout, stderr)
	}
	var help func(*cobra.Command)
	help = func(cmd *cobra.Command) {
		code, stdout, stderr := exec(t.Context(), t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		came["help of "+cmd.CommandPath()] = fmt.Sprint(code, stdout, stderr)
		for _, below := range cmd.Commands() {
			help(below)
		}
	}
	help(root())
	for _, bad := range []string{
		"nats://me:" + marked("url") + "@127.0.0.1:1", marked("bare") + "@127.0.0.1:1",
		"nats://me:" + marked("url") + " x@127.0.0.1:1", "nats://me:half," + marked("comma") + "@127.0.0.1:1",
		"nats://me:" + marked("port"), "nats://me:" + marked("url") + "%zz@127.0.0.1:1",
		strings.Replace(plain, "nats://", "nats://"+marked("wrong")+"@", 1),
		"tls://" + token + "@" + strings.TrimPrefix(plain, "nats://"),
	} {
		code, stdout, stderr := exec(t.Context(), t, "agent", "list", "--nats", bad)
		if code == 0 {
			t.Errorf("%s lets us in", bad)
		}
		t.Logf("%s -> %s", bad, stderr)
		came["agent list --nats "+strings.ReplaceAll(bad, "s3cr3t", "…")] = stdout + stderr
	}
	cpu.end(t, syscall.SIGTERM)
	gpu.end(t, syscall.SIGTERM)
	nats.end(t, syscall.SIGTERM)
	came["log of cpuagent"], came["log of gpuagent"], came["log of nats"] = cpu.log.String(), gpu.log.String(),
		nats.log.String()
	for what, text := range came {
		if at := strings.Index(text, "s3cr3t-"); at >= 0 {
			t.Errorf("%s holds a secret: %.200q", what, text[max(0, at-60):])
		}
	}
	if !strings.Contains(came["log of cpuagent"], "127.0.0.1") || len(came) < 40 {
		t.Errorf("little came out: %d texts", len(came))
	}
}

func fetchText(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatalf("http.Get: %v", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("io.ReadAll: %v", err)
	}
	return string(data)
}

// TestEscapes: what others have written commands no terminal, and a name of megabytes is cut.
func TestEscapes(t *testing.T) {
	srv := jobstest.Start(t, server.Options{})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: srv.URL()})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	hostile := "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e" + strings.Repeat("x", 60_000)
	output, err := json.Marshal(map[string]string{"a": "\u009b31m\u202e"})
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU,
		Logger: slog.New(slog.DiscardHandler), Handlers: map[string]jobs.Handler{
			"bad": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "%s", hostile)
			},
			"good": func(context.Context, jobs.Job, func(any)) (any, error) { return json.RawMessage(output), nil },
		},
	})
	if err != nil {
		t.Fatalf("conn.Work: %v", err)
	}
	t.Cleanup(w.Stop)
	for _, line := range []string{
		"submit --kind bad --id b1 --wait", "submit --kind good --id g1 --wait", "submit --kind good --wait -o json",
		"submit --kind good --wait -o yaml",
		"job get b1", "job get b1 -o json", "job get g1 -o jsonl", "job get b1 -o yaml", "job watch b1", "dlq list",
		"dlq list -o json", "dlq show b1", "dlq show b1 -o yaml",
	} {
		_, stdout, stderr := exec(t.Context(), t, append(strings.Fields(line), "--nats", srv.URL())...)
		for what, text := range map[string]string{"stdout": stdout, "stderr": stderr} {
			if at := strings.IndexAny(text, "\x1b\x07\u009b\u202e"); at >= 0 {
				t.Errorf("%s: %s commands the terminal: %.40q", line, what, text[at:])
			}
		}
		if len(stderr) > 8<<10 {
			t.Errorf("%s: %d bytes on stderr", line, len(stderr))
		}
	}
}
