package monitoring

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/deploy/grafana"
)

// TestDashboards: the files are those that the code generates. Each panel has its own place, a
// description, a unit and the data source of the reader, and asks for series that processes have.
func TestDashboards(t *testing.T) {
	known, err := ByName()
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	for _, d := range grafana.Dashboards() {
		data, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		generated(t, "../../../deploy/grafana/"+d.UID+".json", string(data))
		variables := map[string]bool{"__rate_interval": true}
		for _, v := range d.Variables {
			variables[v.Label] = true
			if f, _, ok := sampled(known, v.Metric); !ok ||
				v.Label != "instance" && !slices.Contains(f.Labels, v.Label) {
				t.Errorf("%s: variable %s: no series of %s has it", d.UID, v.Label, v.Metric)
			}
		}
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				where := d.UID + ", " + p.Title
				if p.Description == "" || p.Unit == "" || len(p.Queries) == 0 {
					t.Errorf("%s: description %q, unit %q, %d queries", where, p.Description, p.Unit, len(p.Queries))
				}
				for _, q := range p.Queries {
					checkExpr(t, known, recorded, where, q.Expr)
					if q.Legend == "" || strings.Contains(q.Concrete("1m"), "$") {
						t.Errorf("%s: legend %q, expression %s", where, q.Legend, q.Concrete("1m"))
					}
				}
			}
		}
		checkLayout(t, d.UID, data)
	}
}

// checkLayout checks the places and ids of the panels of a file.
func checkLayout(t *testing.T, uid string, data []byte) {
	t.Helper()
	var file struct {
		Panels []struct {
			ID         int
			Type       string
			Title      string
			GridPos    struct{ H, W, X, Y int }
			Datasource *struct{ UID string }
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	used, ids, panels := map[[2]int]string{}, map[int]bool{}, 0
	for _, p := range file.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is of two panels", uid, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" {
			panels++
			if p.Datasource == nil || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s, %s: data source %+v", uid, p.Title, p.Datasource)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("%s, %s: place %+v", uid, p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if used[at] != "" {
					t.Fatalf("%s: %s and %s overlap", uid, p.Title, used[at])
				}
				used[at] = p.Title
			}
		}
	}
	if panels > 30 {
		t.Errorf("%s has %d panels: use at most 30", uid, panels)
	}
}
