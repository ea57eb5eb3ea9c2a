package dashboard

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
)

// TestQuestions: the ten questions of an operator are answered on the first page, or behind one
// link of it.
func TestQuestions(t *testing.T) {
	t.Parallel()
	f := newFake(fakeState())
	f.next(func(s *cluster.State) {
		s.Watches[1].State, s.Watches[1].Why = cluster.WatchWaits, "a receiver of its decisions does not take them"
		s.Watches[1].LatencyP99 = 41
	})
	r := opened(t, f, nil)
	b := openBrowser(t)
	b.begin(r)
	// The texts of parts of the page, each with an answer. A link is followed by its address.
	for _, q := range []struct{ question, link, part, answer string }{
		{"is it healthy", "", "section[aria-labelledby=health]", "Needs attention"},
		{"what was detected", "", "section[aria-labelledby=incidents] tbody tr", "pump-17"},
		{"since when", "", "section[aria-labelledby=incidents] tbody tr", "2026-03-05 03:10:00"},
		{"where", "", "section[aria-labelledby=incidents] tbody tr", "plant"},
		{"where, with its values", "#/swarms/s1/entities/17", "main", "Values with the expected band"},
		{"why", "", "section[aria-labelledby=incidents] tbody tr", "expected"},
		{"what is slow", "", "section[aria-labelledby=watched]", "41.0 ms"},
		{"what is slow, in all", "", "section[aria-labelledby=health] .tiles", "Row to decision, 99 %"},
		{"what is stuck", "", ".problems", "plant: a receiver of its decisions"},
		{"what is stuck in the queue", "#/queue", "main", "No agent handles kind nosuch"},
		{"who is loaded", "#/agents", "main table", "Device busy"},
		{"what changed", "", "section[aria-labelledby=changed]", "agent g2 was lost"},
		{"what do I do", "", ".problems", "What to do: "},
		{"what do I do, with all checks", "#/doctor", "h1", "Doctor"},
	} {
		if q.link != "" {
			b.until(q.question+": the link", `document.querySelector("a[href='`+q.link+`']")`)
			b.eval(`document.querySelector("a[href='`+q.link+`']").click()`, nil)
		}
		b.until(q.question, `[...document.querySelectorAll(`+quote(q.part)+`)].some(e => e.innerText.includes(`+
			quote(q.answer)+`))`)
		if q.link != "" {
			b.eval(`location.hash = "#/"`, nil)
			b.until("the first page", `document.querySelector("#changed")`)
		}
	}
	if bad := b.axe(); len(bad) > 0 {
		t.Errorf("axe-core: %s", strings.Join(bad, "\n"))
	}
}
