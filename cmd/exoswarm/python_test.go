package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// servePrograms runs exoswarm serve --programs in this process until the end of the test, and
// returns the variables with which programs find it.
func servePrograms(t *testing.T, args ...string) []string {
	t.Helper()
	out, log := &transcript{}, &transcript{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int)
	cmd := root()
	cmd.SetArgs(append([]string{
		"serve", "--data-dir", t.TempDir(), "--nats-port", "0", "--listen", "127.0.0.1:0", "--device", "host",
		"--programs", "--fast",
	}, args...))
	cmd.SetOut(out)
	cmd.SetErr(log)
	go func() { ended <- command.Run(ctx, cmd, log) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("the server:\n%s", log)
		}
	})
	var line string
	testkit.Until(t, "the start of the server", func() bool {
		_, rest, found := strings.Cut(out.String(), "programs: ")
		whole := false
		line, _, whole = strings.Cut(rest, "\n")
		return found && whole && strings.Contains(out.String(), "open the dashboard")
	})
	return strings.Fields(line)
}

// python returns the interpreter, and skips the test where there is none.
func python(t *testing.T) string {
	t.Helper()
	path, err := osexec.LookPath("python3")
	if err != nil {
		if os.Getenv("EXOSWARM_PYTHON") == "required" {
			t.Fatal("python3 is not installed")
		}
		t.Skip("python3 is not installed: apt-get install python3")
	}
	return path
}

// TestPython runs the tests of the Python package against a real server. They compare the decisions
// of a detector with exoswarm run on the same rows.
func TestPython(t *testing.T) {
	interpreter := python(t)
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	spec := write(t, filepath.Join(data, "spec.yaml"), "name: devices\nkey: device\nagents_per_group: 16\n")
	r := rand.New(rand.NewPCG(3, 4))
	var rows strings.Builder
	rows.WriteString("timestamp,device,value\n")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 1200 {
		v := r.NormFloat64()
		if i > 900 && i%97 == 0 {
			v += 40
		}
		fmt.Fprintf(&rows, "%s,device-%d,%.3f\n", at.Add(time.Duration(i)*time.Second).Format(time.RFC3339), i%3, v)
	}
	input := write(t, filepath.Join(data, "rows.csv"), rows.String())
	output := filepath.Join(data, "decisions.ndjson")
	variables := servePrograms(t)
	if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", input, "--output", output, "--progress",
		"none"); code != 0 {
		t.Fatalf("run: %s", stderr)
	}
	cmd := osexec.CommandContext(t.Context(), interpreter,
		"-W", "error", "-m", "unittest", "discover", "-t", ".", "-s", "tests")
	cmd.Dir = filepath.Join(repo, "python")
	cmd.Env = append(append(os.Environ(), variables...), "EXOSWARM_TEST_DATA="+data, "PYTHONDONTWRITEBYTECODE=1")
	if testkit.Long() { // the bar of score_many, in rows a second
		cmd.Env = append(cmd.Env, "EXOSWARM_TEST_RATE=50000")
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the tests of the Python package: %v", err)
	}
}

// withPandas returns an interpreter that has pandas, and skips the test where there is none.
func withPandas(t *testing.T) string {
	t.Helper()
	for _, path := range []string{python(t), "/usr/bin/python3"} {
		if osexec.CommandContext(t.Context(), path, "-c", "import pandas").Run() == nil {
			return path
		}
	}
	if os.Getenv("EXOSWARM_PYTHON") == "required" {
		t.Fatal("pandas is not installed")
	}
	t.Skip("pandas is not installed: apt-get install python3-pandas")
	return ""
}

// blocks returns the code blocks of a language in a document.
func blocks(t *testing.T, document, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// runBlocks runs the blocks of Python of a document as one program, and returns what it prints. An
// expression at the end of a block is shown as a notebook shows it.
func runBlocks(t *testing.T, interpreter, document string, want int, variables []string) string {
	t.Helper()
	// The test of the installation and servePrograms do what these commands do.
	if commands := blocks(t, document, "sh"); len(commands) != 1 ||
		commands[0] != "pip install ./python\nexoswarm serve --programs\n" {
		t.Fatalf("%s has the commands %q", document, commands)
	}
	all := blocks(t, document, "python")
	if len(all) != want {
		t.Fatalf("%s has %d blocks of Python, want %d", document, len(all), want)
	}
	program := `
import ast, sys
names = {"__name__": "__main__"}
for block in sys.stdin.read().split("\0"):
    body = ast.parse(block).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "block", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "block", "eval"), names)
        if hasattr(value, "_repr_html_"):
            print("shown:", value._repr_html_())
        elif value is not None:
            print(value)
`
	cmd := osexec.CommandContext(t.Context(), interpreter, "-c", program)
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), variables...), "PYTHONPATH="+filepath.Join(repo, "python"),
		"PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin = strings.NewReader(strings.Join(all, "\x00"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", document, err, out)
	}
	return string(out)
}

// TestTutorialPython executes docs/tutorial-python.md: the two failures that the data have come
// first, and the row of a broken pump is an alarm.
func TestTutorialPython(t *testing.T) {
	testkit.OnlyLong(t)
	interpreter := withPandas(t)
	out := runBlocks(t, interpreter, "tutorial-python.md", 6, servePrograms(t))
	t.Log(out)
	lines := strings.Split(out, "\n")
	if both := lines[0] + lines[1]; !strings.Contains(both, "pump-07: 2026-03-12T10:00:00Z") ||
		!strings.Contains(both, "pump-13: 2026-03-13T02:40:00Z") {
		t.Errorf("the first two incidents are not the incidents of the data:\n%s\n%s", lines[0], lines[1])
	}
	for _, want := range []string{"shown: <svg", "decision='anomalous'", "Decision(entity='pump-01'"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %s", want)
		}
	}
}

// TestPythonInstall: pip installs the package from its folder without a network.
func TestPythonInstall(t *testing.T) {
	testkit.OnlyLong(t)
	interpreter, dir := python(t), t.TempDir()
	if osexec.CommandContext(t.Context(), interpreter, "-m", "pip", "--version").Run() != nil {
		t.Skip("pip is not installed: apt-get install python3-pip")
	}
	cmd := osexec.CommandContext(t.Context(), interpreter, "-m", "pip", "install", "--no-index", "--target", dir,
		"../../python")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pip install: %v\n%s", err, out)
	}
	cmd = osexec.CommandContext(t.Context(), interpreter, "-c", "import exoswarm; print(exoswarm.__file__)")
	cmd.Env, cmd.Dir = append(os.Environ(), "PYTHONPATH="+dir), dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), dir) {
		t.Errorf("import: %v\n%s", err, out)
	}
}

// TestTutorialSimulation executes docs/tutorial-simulation.md, and compares what it prints with the
// document.
func TestTutorialSimulation(t *testing.T) {
	out := runBlocks(t, python(t), "tutorial-simulation.md", 4, servePrograms(t))
	t.Log(out)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorial-simulation.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(string(page), "    "+line) {
			t.Errorf("the document does not have the line %q of the output", line)
		}
	}
}

// TestProgramsDocument executes the commands of docs/programs.md: a swarm is made, and rows get
// their decisions.
func TestProgramsDocument(t *testing.T) {
	if _, err := osexec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: apt-get install curl")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	variables := servePrograms(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rows.csv"), "timestamp,pump,value\n2026-03-02,p1,1\n2026-03-03,p1,2\n")
	replace := strings.NewReplacer("http://127.0.0.1:8228", strings.TrimPrefix(variables[0], "EXOSWARM_API="),
		"exoswarm-data/program.token", strings.TrimPrefix(variables[1], "EXOSWARM_TOKEN_FILE="))
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^    (curl (?:.*\\\n)*.*)$`).FindAllStringSubmatch(string(text), -1) {
		cmd := osexec.CommandContext(t.Context(), "bash", "-c", replace.Replace(m[1]))
		cmd.Dir = dir
		got, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		out = append(out, string(got))
	}
	if len(out) != 2 || !strings.Contains(out[0], `"id":"pumps"`) || strings.Count(out[1], `"pump":"p1"`) != 2 {
		t.Errorf("the commands print %q", out)
	}
}
