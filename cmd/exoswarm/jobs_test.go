package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestJobCommandErrors(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	defer s.Close()
	bad := write(t, filepath.Join(dir, "bad.jsonl"),
		`{"pool":"cpu","kind":"k","spec":1}`+"\n"+`{"pool":"cpu","kind":"k","spec":1,"lane":"fast"}`+"\n")
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"submit"}, "--kind is missing"},
		{2, []string{"submit", "--kind", "k", "--spec", "{"}, "--spec is not JSON"},
		{2, []string{"submit", "--kind", "k", "--lane", "fast"}, `lane "fast": use "high", "normal" or "low"`},
		{2, []string{"submit", "--kind", "k", "--spec", "@/does/not/exist"}, "no such file"},
		{2, []string{"submit", "--kind", "k", "--after", "nobody"}, "waits for nobody, which is not known"},
		{2, []string{"submit", "--kind", "k", "--on-failed-parent", "skip"}, "on_failed_parent without after"},
		{2, []string{"cron", "add", "n", "--cron", "0 0 * * *"}, "--cron and --kind say when and what"},
		{2, []string{"cron", "add", "n", "--cron", "0 0 * *", "--kind", "k"}, "use five fields"},
		{
			2,
			[]string{"cron", "add", "n", "--cron", "0 0 * * *", "--kind", "k", "--from", "now"},
			`--from "now": use a time such as`,
		},
		{1, []string{"cron", "remove", "none"}, "schedule none: not found"},
		{2, []string{"tenant", "limit", "t"}, "tenant limit: say what to limit"},
		{2, []string{"tenant", "limit", "t", "--rate", "-1"}, "limit tenant t: rate -1: use 0.001 to 1000000"},
		{2, []string{"tenant", "limit", "a b", "--rate", "1"}, `tenant "a b"`},
		{1, []string{"tenant", "unlimit", "t"}, "unlimit tenant t: it has no limits of its own: not found"},
		{2, []string{"submit", "-f", bad}, `bad.jsonl line 2: field /lane: `},
		{2, []string{"submit", "-f", bad, "--wait"}, "--file goes with neither"},
		{1, []string{"submit", "--kind", "k", "--wait", "--timeout", "50ms"}, "it has no result after 50ms; it goes " +
			"on"},
		{1, []string{"job", "get", "none"}, "job none: neither queued nor over"},
		{2, []string{"job", "get", "a b"}, `job id "a b"`},
		{2, []string{"job", "get"}, "accepts 1 arg"},
		{1, []string{"job", "cancel", "none"}, "not found"},
		{2, []string{"job", "list", "--pool", "tpu"}, `pool "tpu": use cpu or gpu`},
		{2, []string{"queue", "pause", "tpu"}, `pool "tpu"`},
		{2, []string{"queue", "stats", "-o", "xml"}, `--output "xml": use table, json, jsonl or yaml`},
		{1, []string{"dlq", "show", "none"}, "dead letter none: not found"},
		{2, []string{"dlq", "purge", "--kind", "a.>"}, `"a.>"`},
		{2, []string{"init", "--replicas", "9"}, "--replicas 9: use 1 to 5"},
	} {
		code, stdout, stderr := exec(t.Context(), t, append(c.args, "--nats", s.URL())...)
		if strings.Contains(c.want, "no result after") { // behind the hint that nobody serves the kind
			_, stderr, _ = strings.Cut(stderr, "\n")
		}
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, want %d\nstderr %s\nwant   %s\nstdout %s", c.args, code, c.code, stderr, c.want,
				stdout)
		}
	}
}
