package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// explained are decisions of entities with two features and their expected bands, with a number of
// rows each. Every loud entity has an incident of three rows.
func explained(entities, rows int, loud func(e int) bool) []byte {
	var b bytes.Buffer
	for e := range entities {
		for i := range rows {
			decision, cause := "normal", ""
			if at := i - rows/2; loud(e) && at >= 0 && at < 3 {
				decision = "suspicious"
				if at == 0 {
					decision = "anomalous"
				}
				cause = `,"feature":"load","direction":"above","kind":"point","before":0`
			}
			load := 10 + float64((i*37+e)%17)/10
			fmt.Fprintf(&b, `{"id":"device-%05d","row":%d,"timestamp":"%d","load":%g,"temp":%g,"score":0.%d,`+
				`"decision":%q,"expected":{"load":10,"temp":null},"low":{"load":%g,"temp":null},`+
				`"high":{"load":%g,"temp":null}%s}`+"\n", e, i+1, 1_700_000_000+300*i, load, load/3, i%10, decision,
				load-3, load+3, cause)
		}
	}
	return b.Bytes()
}

// scanned returns the page of decisions.
func scanned(t *testing.T, decisions []byte) []byte {
	t.Helper()
	h, series, err := Scan(bytes.NewReader(decisions), "anomalous")
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	h.Title, h.Normal = "fleet", "normal"
	var out bytes.Buffer
	if err := Write(&out, h, bytes.NewReader(decisions), series); err != nil {
		t.Fatalf("Write: %v", err)
	}
	return out.Bytes()
}

// TestScan: the key, the features, the counts and the spans follow from the decisions.
func TestScan(t *testing.T) {
	charts := data(t, string(scanned(t, explained(3, 40, func(e int) bool { return e == 1 }))))
	if len(charts) != 3 || charts[1].Name != "device-00001" || charts[1].Count != 1 || charts[0].Count != 0 {
		t.Fatalf("the charts are %+v", charts)
	}
	c := charts[1]
	if len(c.Spans) != 1 || !c.Spans[0].Incident || c.Spans[0].Rows != 3 || c.Spans[0].Cause != "point of load" ||
		c.Spans[0].Begin != 1_700_006_000 || c.Spans[0].End != 1_700_006_600 {
		t.Errorf("the spans are %+v, want one of three rows", c.Spans)
	}
	if len(c.Low) != 2 || *c.Low[0][0] != 7+float64(1)/10 || c.Low[1][0] != nil || len(c.Low[0]) != len(c.X) {
		t.Errorf("bands: %v, want the bands of load alone", c.Low)
	}
	for i := range c.X {
		if *c.Low[0][i] > *c.Values[0][i] || *c.High[0][i] < *c.Values[0][i] {
			t.Errorf("point %d: %v outside of %v to %v", i, *c.Values[0][i], *c.Low[0][i], *c.High[0][i])
		}
	}
}

// TestBrowserTools: in a real browser the filter leaves one entity, the order puts the ones with
// incidents first, in the list and in the charts, zooming one chart zooms all, and the words are
// explained.
func TestBrowserTools(t *testing.T) {
	bin := browser(t)
	page := string(scanned(t, explained(30, 60, func(e int) bool { return e%10 == 7 })))
	// One browser does all steps, and keeps what each shows in the title.
	const script = `<script>
		const sections = () => document.querySelectorAll("#charts section").length, did = [];
		did.push(document.querySelector("#charts h2").textContent.slice(0, 12), sections());
		did.push(document.querySelectorAll("#rank li").length);
		$("search").value = "00012"; refresh(); did.push(sections(), $("shown").textContent);
		$("search").value = ""; $("only").checked = true; refresh(); did.push(sections());
		INDEX[27].s = 2; refresh(); // of equal numbers of incidents the higher score is first
		for (const first of ["#rank button", "#charts h2"])
			did.push(document.querySelector(first).textContent.slice(0, 12));
		$("what").click();
		setTimeout(() => setZoom([1700003000, 1700006000]), 300);
		setTimeout(() => {
			const n = [...plots].filter(u => u.scales.x.min === 1700003000 && u.scales.x.max === 1700006000).length;
			did.push(n + " of " + plots.size + " zoomed");
			document.title = did.join("; ");
		}, 900);
	</script></body>`
	p := opened(t, bin, []byte(strings.Replace(page, "</body>", script, 1)), 5)
	if p.log != "" {
		t.Errorf("the console says: %s", p.log)
	}
	const want = "<title>device-00007; 30; 3; 1; 1 of 1 shown, 30 in all; 3; device-00027; device-00027; " +
		"3 of 3 zoomed</title>"
	if !strings.Contains(p.dom, want) {
		t.Errorf("the title is %s, want %s", regexp.MustCompile(`<title>.*</title>`).FindString(p.dom), want)
	}
	if !strings.Contains(p.dom, `title="3 incidents from`) || strings.Count(p.dom, `height: 60px`) != 1 {
		t.Error("the overview does not show three incidents at one time")
	}
	if !strings.Contains(p.dom, "2023-11-14 23:03:20 to 2023-11-14 23:53:20 UTC") ||
		!strings.Contains(p.dom, `<dl id="help">`) {
		t.Error("the page lacks the period of the zoom or the meaning of the words")
	}
}

// TestBrowserFleet: a page of 10,000 entities has at most 20 MB, and a browser is ready within a
// second.
func TestBrowserFleet(t *testing.T) {
	testkit.OnlyLong(t)
	bin := browser(t)
	page := scanned(t, explained(10_000, 100, func(e int) bool { return e%50 == 7 }))
	if len(page) > 20<<20 {
		t.Errorf("the page has %d bytes, want 20 MiB at most", len(page))
	}
	best := 1e9
	for range 3 {
		p := opened(t, bin, page, 1)
		m := regexp.MustCompile(`data-ready="(\d+)"`).FindStringSubmatch(p.dom)
		if m == nil || p.log != "" {
			t.Fatalf("the page is not ready: %s", p.log)
		}
		if ms, err := strconv.ParseFloat(m[1], 64); err == nil {
			best = min(best, ms)
		}
	}
	t.Logf("10,000 entities: %d bytes, ready after %v ms", len(page), best)
	if best > 1000 {
		t.Errorf("ready after %v ms, want 1000 at most", best)
	}
}
