package serveprocess_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is a file of deploy/grafana, as far as the tests read it.
type dashboard struct {
	UID        string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type        string
		Title       string
		Description string
		GridPos     struct{ H, W, X, Y int }
		Datasource  *struct{ UID string }
		Targets     []struct{ Expr, LegendFormat string }
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
}

// dashboards reads the files of deploy/grafana.
func dashboards(t *testing.T) (all []dashboard) {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// variable is a variable of a dashboard in an expression.
var variable = regexp.MustCompile(`\$(__rate_interval|[a-z]+)`)

// concrete returns an expression with all values of the variables of its dashboard, and with an
// interval for rates such as 1m, as Grafana sends it.
func concrete(expr, interval string) string {
	return variable.ReplaceAllStringFunc(expr, func(v string) string {
		if v == "$__rate_interval" {
			return interval
		}
		return ".*"
	})
}

// TestDashboards: each panel has its own place, a description, a unit and the data source of the
// reader, and asks for series that processes have. tools/grafana tests that the files are the
// output of the generator.
func TestDashboards(t *testing.T) {
	known, err := ByName()
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for _, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				continue
			}
			m := values.FindStringSubmatch(v.Query)
			if m == nil {
				t.Fatalf("%s: variable %s asks for %q", d.UID, v.Name, v.Query)
			}
			if f, _, ok := sampled(known, m[1]); !ok || m[2] != "instance" && !slices.Contains(f.Labels, m[2]) {
				t.Errorf("%s: variable %s: no series of %s has it", d.UID, m[2], m[1])
			}
		}
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			where := d.UID + ", " + p.Title
			if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s: description %q, unit %q, %d queries", where, p.Description,
					p.FieldConfig.Defaults.Unit, len(p.Targets))
			}
			for _, q := range p.Targets {
				checkExpr(t, known, recorded, where, q.Expr)
				if q.LegendFormat == "" || strings.Contains(concrete(q.Expr, "1m"), "$") {
					t.Errorf("%s: legend %q, expression %s", where, q.LegendFormat, concrete(q.Expr, "1m"))
				}
			}
		}
		checkLayout(t, d)
	}
}

// checkLayout checks the places and ids of the panels of a dashboard.
func checkLayout(t *testing.T, d dashboard) {
	t.Helper()
	used, ids, panels := map[[2]int]string{}, map[int]bool{}, 0
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is of two panels", d.UID, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" {
			panels++
			if p.Datasource == nil || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s, %s: data source %+v", d.UID, p.Title, p.Datasource)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("%s, %s: place %+v", d.UID, p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if used[at] != "" {
					t.Fatalf("%s: %s and %s overlap", d.UID, p.Title, used[at])
				}
				used[at] = p.Title
			}
		}
	}
	if panels > 30 {
		t.Errorf("%s has %d panels: use at most 30", d.UID, panels)
	}
}
