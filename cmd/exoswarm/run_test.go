package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	if os.Getenv(chaosWorkerEnv) != "" { // a worker process of TestChaos
		os.Exit(chaosWorker())
	}
	// Servers are killed and started again under commands; lost_test.go has the default.
	if err := os.Setenv("EXOSWARM_PATIENCE", "2m"); err != nil {
		panic(err)
	}
	testkit.CheckLeaksParallel(tidied{m}, 6)
}

// exec runs the command in this process as its main would and returns exit code, standard output
// and standard error.
func exec(ctx context.Context, t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{}, args...)) // not nil: then it would take the arguments of the test
	cmd.SetOut(&out)
	cmd.SetErr(&err)
	code = command.Run(ctx, cmd, &err)
	return code, out.String(), err.String()
}

// expect is exec of a command that must end with an exit code.
func expect(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := exec(t.Context(), t, args...)
	if code != want {
		t.Fatalf("exoswarm %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
	}
	return stdout, stderr
}

const smallSpec = "name: test\nagents_per_group: 16\n"

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("os.MkdirAll: %v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	return path
}

// series makes the text of a file with a spike now and then.
func series(seed uint64, rows int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("timestamp,value\n")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range rows {
		v := r.NormFloat64()
		if i > 300 && r.IntN(300) == 0 {
			v += 40
		}
		fmt.Fprintf(&b, "%s,%.4f\n", at.Add(time.Duration(i)*time.Minute).Format("2006-01-02 15:04:05"), v)
	}
	return b.String()
}

type decision struct {
	Series    string            `json:"series"`
	Row       uint64            `json:"row"`
	Timestamp string            `json:"timestamp"`
	Value     float64           `json:"value"`
	Score     float64           `json:"score"`
	Decision  string            `json:"decision"`
	Round     uint64            `json:"round"`
	Counts    map[string]uint64 `json:"counts"`
	Leader    *uint64           `json:"leader"`
	Learning  bool              `json:"learning"`
}

func readDecisions(t *testing.T, path string) (all []decision) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	for line := range bytes.Lines(data) {
		var d decision
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, d)
	}
	return all
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	write(t, filepath.Join(dir, "in", "b.csv"), series(1, 700))
	write(t, filepath.Join(dir, "in", "a", "z.csv"), series(2, 500))
	write(t, filepath.Join(dir, "in", "a", "notes.txt"), "not a series")
	write(t, filepath.Join(dir, "in", "a.b.csv"), "timestamp,value\n1,5\n2,x\n3,6")
	single := write(t, filepath.Join(dir, "single"), series(3, 20))
	out, report := filepath.Join(dir, "d.ndjson"), filepath.Join(dir, "r.html")
	args := []string{
		"run", "-f", spec, "--input", filepath.Join(dir, "in"), "--input", single, "--output", out,
		"--report", report, "--data-dir", filepath.Join(dir, "data"), "--max-rejects", "0.5",
	}
	code, stdout, stderr := exec(t.Context(), t, args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	all := readDecisions(t, out)
	var order []string
	rows := map[string][]uint64{}
	for _, d := range all {
		if len(order) == 0 || order[len(order)-1] != d.Series {
			order = append(order, d.Series)
		}
		rows[d.Series] = append(rows[d.Series], d.Row)
		if d.Score < 0 || d.Score > 1 || len(d.Counts) != 3 || d.Leader == nil || d.Decision == "" {
			t.Fatalf("decision %+v: want a score from 0 to 1, three counts, a leader and a decision", d)
		}
		if want := uint64(len(rows[d.Series])); d.Round != want {
			t.Fatalf("%s row %d is round %d, want %d", d.Series, d.Row, d.Round, want)
		}
	}
	if got := strings.Join(order, " "); got != "a.b.csv a/z.csv b.csv single" {
		t.Errorf("series in the order %s", got)
	}
	for name, want := range map[string]int{"a.b.csv": 2, "a/z.csv": 500, "b.csv": 700, "single": 20} {
		if len(rows[name]) != want {
			t.Errorf("%s: %d lines, want %d", name, len(rows[name]), want)
		}
	}
	if rows["a.b.csv"][1] != 3 || all[0].Timestamp != "1" || all[0].Value != 5 {
		t.Errorf("rows %v and first decision %+v; want rows 1 and 3, of time 1 and value 5", rows["a.b.csv"], all[0])
	}
	rejects, err := os.ReadFile(filepath.Join(dir, "d.rejects.ndjson"))
	if err != nil ||
		string(rejects) != `{"series":"a.b.csv","row":2,"line":3,"reason":"column \"value\": \"x\" is not a `+
			`number"}`+"\n" {
		t.Errorf("the rejects are %s, error %v; want row 2 with its reason alone", rejects, err)
	}
	page, err := os.ReadFile(report)
	if err != nil || !bytes.Contains(page, []byte("uPlot")) || bytes.Contains(page, []byte("src=\"http")) {
		t.Errorf("report of %d bytes, %v", len(page), err)
	}
	for _, want := range []string{"a/z.csv", "1222 observations", "1 rejected row\n", out, report} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout)
		}
	}
	// Again, in other batches, over what the first run left: the same bytes, and nothing else in
	// the folder.
	first, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	if code, _, stderr := exec(t.Context(), t, append(args, "--batch-rows", "37")...); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if second, err := os.ReadFile(out); err != nil || !bytes.Equal(first, second) {
		t.Error("a second run in batches of 37 rows gives other decisions", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("os.ReadDir: %v", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "d.ndjson d.rejects.ndjson data in r.html single swarm.yaml" {
		t.Errorf("left behind: %s", got)
	}
}

// TestRunDialect: the reasons for which no row is valid say what to set, and with it the same
// numbers give the same decisions.
func TestRunDialect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := series(1, 200)
	european := strings.NewReplacer(",", ";", ".", ",").Replace(plain)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	write(t, filepath.Join(dir, "plain", "a.csv"), plain)
	write(t, filepath.Join(dir, "european", "a.csv"), european)
	run := func(want int, spec, in string, more ...string) (decisions []decision, stderr string) {
		t.Helper()
		out := filepath.Join(dir, "out.ndjson")
		code, _, stderr := exec(t.Context(), t, append([]string{
			"run", "--progress", "none", "-f", spec, "--input",
			filepath.Join(dir, in), "--output", out,
		}, more...)...)
		if code != want {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		if code == 0 {
			decisions = readDecisions(t, out)
		}
		return decisions, stderr
	}
	want, _ := run(0, spec, "plain")
	if _, stderr := run(2, spec, "european", "--csv", "delimiter=;"); !strings.Contains(stderr,
		`a.csv: row 1 (line 2): column "value"`) ||
		!strings.Contains(stderr, `its numbers have decimal commas: set csv.decimal: ","`) {
		t.Errorf("without a decimal comma: %s", stderr)
	}
	of := write(t, filepath.Join(dir, "european.yaml"), smallSpec+"csv: {delimiter: ';', decimal: ','}\n")
	for name, got := range map[string][]decision{
		"flags": first(run(0, spec, "european", "--csv", "delimiter=;", "--csv", "decimal=,")),
		"spec":  first(run(0, of, "european")),
	} {
		if d := cmp.Diff(want, got); d != "" || len(got) != 200 {
			t.Errorf("%s: %d decisions: %s", name, len(got), d)
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

// watcher is a writer that calls found when its text matches want.
type watcher struct {
	mu    sync.Mutex
	text  bytes.Buffer
	want  string
	found func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if regexp.MustCompile(w.want).Match(w.text.Bytes()) {
		w.found()
	}
	return len(p), nil
}

// TestInterrupt: a run that is interrupted finishes what it read, writes it, and says so; what it
// wrote is the beginning of what the whole run writes.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: test\nagents_per_group: 256\n")
	in := write(t, filepath.Join(dir, "a.csv"), series(1, 120_000))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	part := filepath.Join(dir, "part.ndjson")
	// The interruption comes with the first word of a decision.
	stderr := &watcher{want: `"decisions":[1-9]`, found: func() {
		cancel(fmt.Errorf("%w by a test", command.ErrInterrupted))
	}}
	var stdout bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{
		"run", "-f", spec, "--input", in, "--output", part, "--batch-rows", "512", "--progress",
		"json",
	})
	cmd.SetOut(&stdout)
	cmd.SetErr(stderr)
	if code := command.Run(ctx, cmd, stderr); code != command.ExitInterrupted {
		t.Fatalf("exit %d\n%s%s", code, stdout.String(), stderr.text.String())
	}
	n := len(readDecisions(t, part))
	if n == 0 || n == 120_000 {
		t.Fatalf("%d rows were finished", n)
	}
	if !strings.Contains(stdout.String(), fmt.Sprintf("%d observations before the interruption", n)) ||
		!strings.Contains(stderr.text.String(), "stopping") {
		t.Fatalf("an interrupted run says\n%s%s\nwant its %d observations, and that it stops", stdout.String(),
			stderr.text.String(), n)
	}
}

// TestQuickstart: it finds what README.md says, and the decision that README.md shows is one of its
// own.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	readme := string(text)
	shown := regexp.MustCompile(`(?m)^    (\{"series":.*)\n     (.*\})$`).FindStringSubmatch(readme)
	if shown == nil {
		t.Fatal("README.md shows no decision")
	}
	for range testkit.Of(2, 1) { // the second run replaces what the first has written
		code, stdout, stderr := exec(t.Context(), t, "quickstart", "--out", dir)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		for _, want := range []string{
			"6 series, 24192 observations, 24192 decisions", "decisions.ndjson",
			"report.html",
		} {
			if !strings.Contains(stdout, want) {
				t.Errorf("no %q in\n%s", want, stdout)
			}
		}
		if n := len(readDecisions(t, filepath.Join(dir, "decisions.ndjson"))); n != 24192 {
			t.Errorf("%d decisions", n)
		}
		outcome := regexp.MustCompile(`(\d+) of (\d+) labelled incidents found, (\d+) alarms? outside`).
			FindStringSubmatch(stdout)
		if outcome == nil || !strings.Contains(readme, outcome[0]) {
			t.Fatalf("README.md does not say %q", outcome)
		}
		found, _ := strconv.Atoi(outcome[1])
		all, _ := strconv.Atoi(outcome[2])
		if outside, _ := strconv.Atoi(outcome[3]); 5*found < 4*all || 5*outside > 2*all {
			t.Errorf("%s, want four out of five found, and two alarms outside for five incidents at most", outcome[0])
		}
		if page, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil ||
			strings.Count(string(page), "the server is down") == 0 {
			t.Errorf("the report does not name the labelled incidents: %v", err)
		}
		if out, err := os.ReadFile(filepath.Join(dir, "decisions.ndjson")); err != nil ||
			!strings.Contains(string(out), shown[1]+shown[2]+"\n") {
			t.Errorf("no decision is the one that README.md shows: %v", err)
		}
	}
}
