package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// data takes the charts out of a page.
func data(t *testing.T, page string) (charts []chart) {
	t.Helper()
	_, rest, ok := strings.Cut(page, `id="data">`+"\n")
	if !ok {
		t.Fatal("the page has no data")
	}
	rest, _, _ = strings.Cut(rest, "</script>")
	for dec := json.NewDecoder(strings.NewReader(rest)); dec.More(); {
		var c chart
		if err := dec.Decode(&c); err != nil {
			t.Fatalf("Decode: %v, want no error", err)
		}
		charts = append(charts, c)
	}
	return charts
}

// TestNoSpikeIsLost: a long series is thinned out, and its extremes, highest score and anomalies
// are all there.
func TestNoSpikeIsLost(t *testing.T) {
	var in bytes.Buffer
	const n = 50_000
	for i := range n {
		v, s, d := math.Sin(float64(i)/100), 0.1, "normal"
		switch i {
		case 12_345:
			v, s, d = 99, 0.9, "anomalous"
		case 40_001:
			v = -99
		}
		fmt.Fprintf(&in, `{"series":"a</script>","row":%d,"timestamp":"%d","value":%g,"score":%g,"decision":"%s"}`+"\n",
			i+1, i, v, s, d)
	}
	fmt.Fprintln(&in, `{"series":"short","row":1,"timestamp":"5","value":1,"score":0,"decision":"normal"}`)
	var out bytes.Buffer
	series := []cpuagents.SeriesSummary{{Name: "a</script>", Decisions: n, Anomalies: 1}, {Name: "short", Decisions: 1}}
	h := Header{Title: "<b>title", Anomaly: "<i>anomalous", Features: []string{"value", "{{page.js}}", "<u>\"unit"}}
	if err := Write(&out, h, strings.NewReader(strings.ReplaceAll(in.String(), `"anomalous"`, `"<i>anomalous"`)),
		series); err != nil {
		t.Fatalf("Write: %v, want no error", err)
	}
	page := out.String()
	for _, raw := range []string{"<b>title", "<i>anomalous", "<u>", "a</script>"} {
		if strings.Contains(page, raw) {
			t.Errorf("the page has %q as HTML", raw)
		}
	}
	if !strings.Contains(page, `FEATURES = ["value","{{page.js}}","\u003cu\u003e\"unit"]`) ||
		strings.Count(page, pageJS) != 1 {
		t.Error("the names of features are not the data of the page's script")
	}
	charts := data(t, page)
	if len(charts) != 2 || len(charts[1].X) != 1 {
		t.Fatalf("%d charts", len(charts))
	}
	c := charts[0]
	if len(c.X) > 2*maxBuckets+2 || len(c.X) != len(c.Values[0]) || len(c.X) != len(c.Score) {
		t.Fatalf("%d points", len(c.X))
	}
	low, high, score := 0.0, 0.0, 0.0
	for i := range c.X {
		if i > 0 && c.X[i] < c.X[i-1] {
			t.Fatal("points out of order")
		}
		low, high, score = min(low, *c.Values[0][i]), max(high, *c.Values[0][i]), max(score, c.Score[i])
	}
	if low != -99 || high != 99 || score != 0.9 || len(c.Anomalies) != 1 || c.Anomalies[0].Row != 12_346 {
		t.Errorf("lowest %v, highest %v, score %v, anomalies %+v, want -99, 99, 0.9 and one",
			low, high, score, c.Anomalies)
	}
}

// TestLate: what was dropped is not drawn, and what came late and was applied is drawn where it
// belongs.
func TestLate(t *testing.T) {
	var in bytes.Buffer
	for i, at := range []int{5, 9, 7, 8} {
		fmt.Fprintf(&in, `{"series":"s","row":%d,"timestamp":"%d","value":%d,"score":0,"decision":"normal"}`+"\n", i+1,
			at, at)
	}
	fmt.Fprintln(&in, `{"series":"s","row":5,"timestamp":"6","value":6,"dropped":"late"}`)
	var out bytes.Buffer
	h := Header{Features: []string{"value"}, Result: cpuagents.StreamResult{Dropped: cpuagents.Dropped{Late: 1}}}
	if err := Write(&out, h, &in, []cpuagents.SeriesSummary{{Name: "s", Decisions: 4}}); err != nil {
		t.Fatalf("Write: %v, want no error", err)
	}
	c := data(t, out.String())[0]
	var values []float64
	for _, v := range c.Values[0] {
		values = append(values, *v)
	}
	if fmt.Sprint(c.X, values) != "[5 7 8 9] [5 7 8 9]" || !strings.Contains(out.String(), "observations dropped") {
		t.Errorf("rows %v, values %v, want 5 7 8 9 of both, and a note on dropped observations", c.X, values)
	}
}

func TestBrokenDecisions(t *testing.T) {
	if err := Write(&bytes.Buffer{}, Header{}, strings.NewReader("{\n"), nil); err == nil {
		t.Error("half a line was taken")
	}
}
