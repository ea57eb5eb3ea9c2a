package report

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// browser is a Chromium that needs no screen.
func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser: not with -short")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: install the package chromium to test the report in a browser")
	return ""
}

// drawnPage is a report as a browser has drawn it.
type drawnPage struct {
	dom string
	log string // of the console
}

// opened loads a report in a window so tall that all its charts are in view.
func opened(t *testing.T, bin string, report []byte, charts int) drawnPage {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, report, 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run",
		"--disable-background-networking", "--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr",
		"--v=0",
		fmt.Sprintf("--window-size=1200,%d", 800+500*min(charts, 20)), "--virtual-time-budget=20000",
		"--run-all-compositor-stages-before-draw", "--dump-dom", "file://"+file)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v, want no error\n%s", bin, err, log.Bytes())
	}
	p := drawnPage{dom: out.String()}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			p.log += line
		}
	}
	return p
}

func (p drawnPage) count(pattern string) int {
	return len(regexp.MustCompile(pattern).FindAllString(p.dom, -1))
}

// written is the report of series with a number of rows each. The last row of every loud series is
// anomalous.
func written(t *testing.T, series, rows int, loud func(i int) bool, labels ...Label) []byte {
	t.Helper()
	var in, out bytes.Buffer
	var all []cpuagents.SeriesSummary
	for s := range series {
		sum := cpuagents.SeriesSummary{
			Name: fmt.Sprintf("series-%05d.csv", s), Observations: uint64(rows),
			Decisions: uint64(rows),
		}
		for i := range rows {
			decision := "normal"
			if loud(s) && i == rows-1 {
				decision = "anomalous"
				sum.Anomalies = 1
			}
			fmt.Fprintf(&in,
				`{"series":%q,"row":%d,"timestamp":"%d","load":%d,"errors %%":%g,"score":0.1,"decision":%q}`+"\n",
				sum.Name, i+1, 1_700_000_000+60*i, i%7, float64(i)/3, decision)
		}
		all = append(all, sum)
	}
	h := Header{Title: "shops", Anomaly: "anomalous", Features: []string{"load", "errors %"}}
	if len(labels) > 0 {
		var err error
		if h.Labels, err = Compare(labels, h.Anomaly, nil, bytes.NewReader(in.Bytes())); err != nil {
			t.Fatalf("Compare: %v, want no error", err)
		}
	}
	if err := Write(&out, h, &in, all); err != nil {
		t.Fatalf("Write: %v, want no error", err)
	}
	return out.Bytes()
}

// TestBrowser draws reports in a real browser: every chart is drawn, whatever its series has, and
// the console stays empty.
func TestBrowser(t *testing.T) {
	bin := browser(t)
	quiet := func(int) bool { return false }
	for _, c := range []struct {
		name         string
		series, rows int
		loud         func(int) bool
		sections     int // of the page
		drawn        int // at least, in view
		lists        int // of anomalies
	}{
		{"quiet between loud", 12, 50, func(i int) bool { return i%2 == 0 }, 12, 12, 6},
		{"all quiet", 3, 50, quiet, 3, 3, 0},
		{"one row", 1, 1, quiet, 1, 1, 0},
		{"no decision", 2, 0, quiet, 2, 2, 0},
		{"a long series", 1, 20_000, func(int) bool { return true }, 1, 1, 1},
		{"10,000 series", 10_000, 2, func(i int) bool { return i%1000 == 999 }, 200, 10, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "all quiet" || c.name == "a long series" {
				testkit.OnlyLong(t) // a browser takes a second; the other cases have such series too, or their data
			}
			p := opened(t, bin, written(t, c.series, c.rows, c.loud), c.sections)
			if p.log != "" {
				t.Errorf("the console says: %s", p.log)
			}
			if n := p.count(`<section>`); n != c.sections {
				t.Errorf("%d series on the page, want %d", n, c.sections)
			}
			if n := p.count(`<canvas`); n < c.drawn {
				t.Errorf("%d charts are drawn, want %d", n, c.drawn)
			}
			if n := p.count(`<details>`); n != c.lists {
				t.Errorf("%d lists of anomalies, want %d", n, c.lists)
			}
			if !strings.Contains(p.dom, "errors %") {
				t.Error("the second feature is not named")
			}
		})
	}
}

// TestBrowserLabels: a real browser lays a band over each labelled interval, within the chart and
// as wide as the interval, and says which were found. A label without a series is on every chart.
func TestBrowserLabels(t *testing.T) {
	bin := browser(t)
	const rows, start = 50, 1_700_000_000
	at := func(row int) string { return fmt.Sprint(start + 60*row) }
	labels, err := ParseLabels(fmt.Appendf(nil, `[
		{"series":"series-00000.csv","what":"<b>the last row</b>","begin":%q,"end":%q},
		{"series":"series-00000.csv","begin":%q,"end":%q},
		{"what":"of all","begin":%q,"end":%q},
		{"series":"series-00001.csv","what":"before the first row","begin":"2001-01-01","end":"2001-01-02"}]`,
		at(45), at(49), at(10), at(20), at(30), at(30)))
	if err != nil {
		t.Fatalf("ParseLabels: %v, want no error", err)
	}
	p := opened(t, bin, written(t, 2, rows, func(i int) bool { return i == 0 }, labels...), 2)
	if p.log != "" {
		t.Errorf("the console says: %s", p.log)
	}
	for pattern, want := range map[string]int{
		`<div class="band found" style="left: [0-9.]+px; width: [0-9.]+px;"><span>found</span>`:   1,
		`<div class="band missed" style="left: [0-9.]+px; width: [0-9.]+px;"><span>missed</span>`: 3,
		// outside the chart
		`<div class="band missed" hidden=""`: 1,
		// an instant can be seen
		`width: 3px;"><span>missed`:           2,
		`labelled incidents \(1 of 3 found\)`: 1,
		`labelled incidents \(0 of 2 found\)`: 1,
		`<td>found</td><td>` + at(45) + `</td><td>` + at(49) + `</td><td>&lt;b&gt;the last row`: 1,
		`1 of 4 labelled incidents found, 0 alarms outside`:                                     1,
	} {
		if n := p.count(pattern); n != want {
			t.Errorf("%d of %s on the page, want %d", n, pattern, want)
		}
	}
	// The chart is as wide as 49 minutes: its bands are 4 and 10 of them.
	found := regexp.MustCompile(`class="band found" style="left: ([0-9.]+)px; width: ` +
		`([0-9.]+)px`).FindStringSubmatch(p.dom)
	missed := regexp.MustCompile(`class="band missed" style="left: ([0-9.]+)px; width: `+
		`([0-9.]+)px`).FindAllStringSubmatch(p.dom, -1)
	if found == nil || len(missed) != 3 {
		t.Fatalf("bands: found %q, missed %q, want one and three", found, missed)
	}
	wide := func(m []string) float64 {
		w, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatalf("strconv.ParseFloat: %v, want no error", err)
		}
		return w
	}
	widest := 0.0
	for _, m := range missed {
		widest = max(widest, wide(m))
	}
	if ratio := widest / wide(found); ratio < 2.4 || ratio > 2.6 {
		t.Errorf("a label of 10 minutes is %.2f times as wide as one of 4", ratio)
	}
}
