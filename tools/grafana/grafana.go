// Command grafana writes the dashboards of deploy/grafana.
//
//	go run -C tools ./grafana
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", "../deploy/grafana", "folder of the files")
	flag.Parse()
	for _, d := range Dashboards() {
		data, err := d.JSON()
		if err == nil {
			err = os.WriteFile(filepath.Join(*out, d.UID+".json"), data, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "grafana:", err)
			os.Exit(1)
		}
	}
}

// Dashboard is a dashboard, as rows of panels.
type Dashboard struct {
	// UID names the file, UID.json, and is a part of the URL in Grafana. It must not change.
	UID, Title, Description string
	// Variables are the labels by which a reader may choose series, each with the metric that has
	// them.
	Variables []Variable
	Rows      []Row
}

// Variable is a label whose values a reader chooses.
type Variable struct{ Label, Metric string }

// Row is a titled row of panels, which are as wide as each other.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one panel.
type Panel struct {
	Title, Description string
	Kind               string // of Grafana: stat, timeseries, heatmap or state-timeline
	Unit               string // of Grafana, such as s, bytes or percentunit; short for counts
	Stacked            bool
	Exemplars          bool
	Queries            []Query
	// MayBeEmpty tells why the panel may have no data on a cluster that works.
	MayBeEmpty string
}

// Query is an expression of PromQL with the legend of its series. $instance, $device and $cell are
// the variables of the dashboard.
type Query struct{ Expr, Legend string }

// Dashboards returns all dashboards.
func Dashboards() []Dashboard { return []Dashboard{overview(), devices(), storage()} }

func q(expr, legend string) Query { return Query{expr, legend} }

func rate(metric, by string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, metric)
}

func quantile(of float64, metric, by string) string {
	labels := "le"
	if by != "" {
		labels += ", " + by
	}
	name, selector, _ := strings.Cut(metric, "{")
	if selector != "" {
		selector = "{" + selector
	}
	return fmt.Sprintf("histogram_quantile(%v, sum by (%s) (rate(%s_bucket%s[$__rate_interval])))", of, labels, name,
		selector)
}

// Height and width of the grid of Grafana, and of panels.
const (
	gridColumns = 24
	statHeight  = 4
	height      = 8
)

// The documents of Grafana, with the fields that these dashboards use.
type (
	document struct {
		UID           string   `json:"uid"`
		Title         string   `json:"title"`
		Description   string   `json:"description"`
		Tags          []string `json:"tags"`
		SchemaVersion int      `json:"schemaVersion"`
		Editable      bool     `json:"editable"`
		Refresh       string   `json:"refresh"`
		Time          span     `json:"time"`
		Links         []link   `json:"links"`
		Templating    struct {
			List []variable `json:"list"`
		} `json:"templating"`
		Panels []panel `json:"panels"`
	}
	span struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	link struct {
		Title       string   `json:"title"`
		Type        string   `json:"type"`
		Tags        []string `json:"tags"`
		AsDropdown  bool     `json:"asDropdown"`
		IncludeVars bool     `json:"includeVars"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	variable struct {
		Name       string  `json:"name"`
		Label      string  `json:"label"`
		Type       string  `json:"type"`
		Query      string  `json:"query"`
		Datasource *source `json:"datasource,omitempty"`
		Refresh    int     `json:"refresh"`
		Multi      bool    `json:"multi"`
		IncludeAll bool    `json:"includeAll"`
		AllValue   string  `json:"allValue,omitempty"`
	}
	position struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	panel struct {
		ID          int            `json:"id"`
		Type        string         `json:"type"`
		Title       string         `json:"title"`
		Description string         `json:"description,omitempty"`
		GridPos     position       `json:"gridPos"`
		Datasource  *source        `json:"datasource,omitempty"`
		Targets     []target       `json:"targets,omitempty"`
		FieldConfig *fieldConfig   `json:"fieldConfig,omitempty"`
		Options     map[string]any `json:"options,omitempty"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Format       string `json:"format,omitempty"`
		Exemplar     bool   `json:"exemplar,omitempty"`
		Datasource   source `json:"datasource"`
	}
	fieldConfig struct {
		Defaults struct {
			Unit   string         `json:"unit"`
			Min    *float64       `json:"min,omitempty"`
			Custom map[string]any `json:"custom,omitempty"`
		} `json:"defaults"`
		Overrides []any `json:"overrides"`
	}
)

// prometheus is the data source that the reader chooses.
var prometheus = source{"prometheus", "${datasource}"}

// JSON returns the file of the dashboard.
func (d Dashboard) JSON() ([]byte, error) {
	out := document{
		UID: d.UID, Title: d.Title, Description: d.Description, Tags: []string{"exoswarm"}, SchemaVersion: 39,
		Refresh: "10s", Time: span{"now-1h", "now"},
		Links: []link{{Title: "Exoswarm", Type: "dashboards", Tags: []string{"exoswarm"}, AsDropdown: true}},
	}
	out.Templating.List = []variable{{
		Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1,
	}}
	for _, v := range d.Variables {
		out.Templating.List = append(out.Templating.List, variable{
			Name: v.Label, Label: v.Label, Type: "query", Query: fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Label),
			Datasource: &prometheus, Refresh: 2, Multi: true, IncludeAll: true, AllValue: ".*",
		})
	}
	y := 0
	add := func(p panel, at position) {
		p.ID, p.GridPos = len(out.Panels)+1, at
		out.Panels = append(out.Panels, p)
	}
	for _, r := range d.Rows {
		add(panel{Type: "row", Title: r.Title}, position{H: 1, W: gridColumns, Y: y})
		y++
		perLine := min(len(r.Panels), 4)
		h := height
		if r.Panels[0].Kind == "stat" {
			perLine, h = len(r.Panels), statHeight
		}
		for i, p := range r.Panels {
			w := gridColumns / perLine
			add(p.panel(), position{H: h, W: w, X: i % perLine * w, Y: y + i/perLine*h})
		}
		y += (len(r.Panels) + perLine - 1) / perLine * h
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(out)
	return b.Bytes(), err
}

func (p Panel) panel() panel {
	out := panel{
		Type: p.Kind, Title: p.Title, Description: p.Description, Datasource: &prometheus, FieldConfig: &fieldConfig{},
	}
	if p.MayBeEmpty != "" {
		out.Description += " Empty if " + p.MayBeEmpty + "."
	}
	zero := 0.0
	out.FieldConfig.Defaults.Unit, out.FieldConfig.Overrides = p.Unit, []any{}
	switch p.Kind {
	case "stat":
		out.Options = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}}
	case "timeseries":
		out.FieldConfig.Defaults.Min = &zero
		custom := map[string]any{"fillOpacity": 10, "showPoints": "never"}
		if p.Stacked {
			custom["stacking"] = map[string]any{"mode": "normal"}
		}
		out.FieldConfig.Defaults.Custom = custom
		out.Options = map[string]any{"tooltip": map[string]any{"mode": "multi"}}
	case "heatmap":
		out.Options = map[string]any{"calculate": false, "yAxis": map[string]any{"unit": p.Unit}}
	}
	for i, q := range p.Queries {
		t := target{
			RefID: string(rune('A' + i)), Expr: q.Expr, LegendFormat: q.Legend, Exemplar: p.Exemplars,
			Datasource: prometheus,
		}
		if p.Kind == "heatmap" {
			t.Format = "heatmap"
		}
		out.Targets = append(out.Targets, t)
	}
	return out
}
