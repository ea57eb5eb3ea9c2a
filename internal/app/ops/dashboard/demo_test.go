package dashboard

import (
	"bufio"
	"flag"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

var program = flag.String("serve", "", "file of the command exoswarm, whose demo TestDemo looks at")

// demoViews are the pages of the demo, by the name of their picture.
var demoViews = []view{
	{"overview", "", "requests_per_s"},
	{"incidents", "incidents", "requests_per_s"},
	{"entity", "swarms/demo/entities/4", "Votes of its agents"},
	{"machine", "swarms/this-machine/entities/0", "Votes of its agents"},
	{"numbers", "numbers", "NATS store"},
	{"detectors", "detectors", "this-machine"},
	{"detector", "detectors/demo", "Rows and decisions"},
	{"swarms", "swarms", "demo"},
	{"swarm", "swarms/demo", "Entropy and margin"},
	{"queue", "queue", "Dead letters"},
	{"agents", "agents", "gpuagent"},
	{"agent", "agents/gpuagent", "Show the charts"},
	{"tiers", "tiers", "Pages by tier"},
	{"tenants", "tenants", "default"},
	{"nats", "nats", "EXO_"},
	{"doctor", "doctor", "passed"},
}

// TestDemo starts the demo, opens every page on all screens when it has found some incidents, and
// takes the pictures of the documents: make pictures.
func TestDemo(t *testing.T) {
	if *program == "" {
		t.Skip("make pictures runs it")
	}
	cmd := exec.CommandContext(t.Context(), *program, "serve", "--demo", "--watch-this-machine",
		"--data-dir", t.TempDir(), "--nats-port", "0", "--listen", "127.0.0.1:0", "--log-level", "error")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "open the dashboard: ")
	}
	b := openBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watch}, nil)
	b.look(1280, 900, "light", false)
	b.open(address)
	b.until("some incidents", `document.querySelectorAll("section[aria-labelledby=incidents] tbody tr").length >= 5`)
	b.useAxe()
	b.eachScreen(t, demoViews, *pictures)
}
