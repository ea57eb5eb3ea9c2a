package dashboard

import (
	"flag"
	"testing"
)

var address = flag.String("address", "", "login address of exoswarm serve --demo --watch-this-machine, for TestDemo")

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
	{"doctor", "doctor", "Checks"},
}

// TestDemo opens every page of a demo that runs, on all screens, and takes the pictures of the documents:
// make pictures.
func TestDemo(t *testing.T) {
	if *address == "" {
		t.Skip("make pictures runs it")
	}
	b := openBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watch}, nil)
	b.look(1280, 900, "light", false)
	b.open(*address)
	b.until("an incident", `document.querySelector("main").innerText.includes("requests_per_s")`)
	b.useAxe()
	b.eachScreen(t, demoViews, *pictures)
}
