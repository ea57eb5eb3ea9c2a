package command

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// MetricPrefix begins the names of the families of Exoswarm. The client library names the families
// of the Go runtime and of the process.
const MetricPrefix = "exoswarm_"

// Types of families, as in the text format of Prometheus.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Family is one metric family, whether it has series at present or not.
type Family struct {
	Name string
	Type string
	Help string
	// Labels are the names of the labels that distinguish series, in the order of the collector.
	// Constant labels, which all series of a process share, are behind them.
	Labels []string
}

// Unit returns the unit of the values by the suffix of the name: a base unit of Prometheus, ratio,
// or the empty string for a count or a state.
func (f Family) Unit() string {
	name := strings.TrimSuffix(f.Name, "_total")
	for _, u := range units {
		if strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return ""
}

// units are the suffixes that name a unit. A name has one of them or counts things.
var units = []string{"seconds", "bytes", "ratio", "celsius", "watts", "joules", "hertz"}

// FamilyRegistry is a registry that knows the families of its collectors. Its methods may be called
// from several goroutines.
type FamilyRegistry struct {
	*prometheus.Registry

	mu  sync.Mutex
	all map[string]Family
}

// NewFamilyRegistry returns an empty registry.
func NewFamilyRegistry() *FamilyRegistry {
	return &FamilyRegistry{Registry: prometheus.NewRegistry(), all: map[string]Family{}}
}

// Register implements prometheus.Registerer.
func (r *FamilyRegistry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range FamiliesOf(c) {
		r.all[f.Name] = f
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *FamilyRegistry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Families returns the registered families of Exoswarm, by name.
func (r *FamilyRegistry) Families() []Family {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Family
	for _, f := range r.all {
		if strings.HasPrefix(f.Name, MetricPrefix) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// description is the text of a prometheus.Desc, whose fields are not exported.
var description = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

var constant = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`)

// withHistograms is a custom collector that has histograms.
type withHistograms interface {
	// Histograms returns the names of the families that are histograms.
	Histograms() []string
}

// FamiliesOf returns the families of a collector, by name. The type of a custom collector follows
// from the name: a counter ends with _total, the collector's method Histograms names histograms,
// and all others are gauges.
func FamiliesOf(c prometheus.Collector) []Family {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	var all []Family
	for d := range descs {
		f, err := parse(d.String())
		if err != nil {
			panic(err) // the client library has changed its text: TestOf fails
		}
		f.Type = typeOf(c, f.Name)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func parse(text string) (Family, error) {
	m := description.FindStringSubmatch(text)
	if m == nil {
		return Family{}, fmt.Errorf("metric description %s: its form is unknown", text)
	}
	name, err := strconv.Unquote(m[1])
	if err != nil {
		return Family{}, fmt.Errorf("metric description %s: %w", text, err)
	}
	help, err := strconv.Unquote(m[2])
	if err != nil {
		return Family{}, fmt.Errorf("metric description %s: %w", text, err)
	}
	f := Family{Name: name, Help: help}
	if m[4] != "" {
		for l := range strings.SplitSeq(m[4], ",") {
			f.Labels = append(f.Labels, strings.TrimSpace(l))
		}
	}
	for _, l := range constant.FindAllStringSubmatch(m[3], -1) {
		f.Labels = append(f.Labels, l[1])
	}
	return f, nil
}

func typeOf(c prometheus.Collector, name string) string {
	switch c := c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return Histogram
	case withHistograms:
		if slices.Contains(c.Histograms(), name) {
			return Histogram
		}
	}
	if strings.HasSuffix(name, "_total") {
		return Counter
	}
	return Gauge
}
