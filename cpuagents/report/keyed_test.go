package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// TestEntities: mixed rows of entities are drawn as if the rows of each entity were together, and
// labels name an entity.
func TestEntities(t *testing.T) {
	var mixed bytes.Buffer
	var apart [2]bytes.Buffer
	const n = 3000
	for i := range n {
		for e := range apart {
			w := &apart[e]
			decision := "normal"
			if i%1000 == 500+e {
				decision = "anomalous"
			}
			rest := fmt.Sprintf(`"row":%d,"timestamp":"%d","value":%d,"score":0.5,"decision":"%s"}`+"\n",
				i+1, i, i*(e+1), decision)
			fmt.Fprintf(&mixed, `{"site":"s","id":"%d",%s`, e, rest)
			fmt.Fprintf(w, `{"series":"s, %d",%s`, e, rest)
		}
	}
	var summary []cpuagents.SeriesSummary
	for e := range apart {
		summary = append(summary, cpuagents.SeriesSummary{Name: fmt.Sprint("s, ", e), Decisions: n, Anomalies: 3})
	}
	h := Header{Title: "t", Anomaly: "anomalous", Features: []string{"value"}}
	pages := [2]bytes.Buffer{}
	if err := Write(&pages[0], h, strings.NewReader(apart[0].String()+apart[1].String()), summary); err != nil {
		t.Fatal(err)
	}
	h.Keys = []string{"site", "id"}
	if err := Write(&pages[1], h, bytes.NewReader(mixed.Bytes()), summary); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(pages[0].String(), "<b>2</b> series", "<b>2</b> entities")
	want = strings.ReplaceAll(want, "filter series by", "filter entities by")
	if pages[1].String() != want {
		t.Errorf("entities have a page of %d bytes, series one of %d", pages[1].Len(), len(want))
	}
	labels, err := ParseLabels([]byte(`[{"series":"s, 1","begin":"1400","end":"1600"},{"series":"s, 2","begin":"1",` +
		`"end":"9000"}]`))
	if err != nil {
		t.Fatal(err)
	}
	o, err := Compare(labels, "anomalous", h.Keys, bytes.NewReader(mixed.Bytes()))
	if err != nil || o.Found != 1 || o.Each[0].Alarms != 1 || o.Outside != 5 {
		t.Errorf("the outcome is %+v, %v", o, err)
	}
	if err := Write(&pages[0], h, strings.NewReader(`{"site":"s","row":1}`+"\n"), summary); err == nil ||
		!strings.Contains(err.Error(), `member "id"`) {
		t.Errorf("a line without a key: %v", err)
	}
}
