package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	// maxIncidents bounds the incidents that are open at a time. They are stored with the position.
	maxIncidents = 1000
	// resendEvery is the time after which open alerts are sent again. Alertmanager resolves an
	// alert that is not sent again, after five minutes by default.
	resendEvery = time.Minute
	// labelBytes bounds the value of a label.
	labelBytes = 1 << 10
)

var badLabel = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// labelNames returns the names of labels for columns: letters, digits and "_". A name that is
// reserved or there already gets the prefix "key_".
func labelNames(columns []string, reserved ...string) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		name := badLabel.ReplaceAllString(c, "_")
		if name == "" || name[0] >= '0' && name[0] <= '9' {
			name = "_" + name
		}
		for strings.HasPrefix(name, "__") || slices.Contains(reserved, name) || slices.Contains(names[:i], name) {
			name = "key_" + name
		}
		names[i] = name
	}
	return names
}

func (b *base) checkLabels(names []string, reserved ...string) error {
	for name := range b.spec.Labels {
		if badLabel.MatchString(name) || name == "" || name[0] >= '0' && name[0] <= '9' ||
			strings.HasPrefix(name, "__") ||
			slices.Contains(names, name) || slices.Contains(reserved, name) {
			return b.bad("label %q: use letters, digits and _, and no name of a column or %s", name,
				strings.Join(reserved, ", "))
		}
	}
	return nil
}

// shorten returns a text of at most labelBytes bytes in UTF-8.
func shorten(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), labelBytes)], "")
}

// alert is an alert of the API of Alertmanager, version 2.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt,omitzero"`
}

// alertmanager posts an alert at the start of an incident and resolves it at its end. An incident
// begins with a decision for the last candidate, and ends with the next one for the first
// candidate.
type alertmanager struct {
	*notifier
	layout rows.Layout
	names  []string // of the labels of an entity
	clock  rows.Clock

	mu   sync.Mutex // of open, which the goroutine of the notifier reads
	open map[uint32]alert
}

func newAlertmanager(b base, l rows.Layout, s Resources) (Sink, error) {
	address := strings.TrimSuffix(strings.TrimPrefix(b.spec.URI, "alertmanager:"), "/")
	if !strings.HasSuffix(address, "/api/v2/alerts") {
		address += "/api/v2/alerts"
	}
	n, err := newNotifier(b, s, "alertmanager", address, "application/json", cmp.Or(b.spec.Rate, 10))
	if err != nil {
		return nil, err
	}
	reserved := []string{"alertname", "detector", "feature"}
	names := labelNames(l.NameColumns(), reserved...)
	if err := n.checkLabels(names, reserved...); err != nil {
		return nil, err
	}
	t := &alertmanager{notifier: n, layout: l, names: names, open: map[uint32]alert{}}
	n.idle, n.idleEvery = t.resend, resendEvery
	return t, nil
}

// Open implements Sink. The position has the open incidents.
func (t *alertmanager) Open(ctx context.Context, log swarms.Log) error {
	if err := t.notifier.Open(ctx, log); err != nil {
		return err
	}
	if len(t.state) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := json.Unmarshal(t.state, &t.open); err != nil {
		return fmt.Errorf("incidents of sink %s: %w", t.where, err)
	}
	return nil
}

func (t *alertmanager) Send(_ context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.resumed {
		return nil
	}
	alerts, err := t.changes(d)
	if err != nil || len(alerts) == 0 {
		return err
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return fmt.Errorf("encode alerts: %w", err)
	}
	t.mu.Lock()
	state, err := json.Marshal(t.open)
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode incidents: %w", err)
	}
	return t.put(message{first: number, last: number, body: body, state: state})
}

// changes returns the alerts that begin or end with a batch.
func (t *alertmanager) changes(d *batch.Decisions) (alerts []alert, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	beyond := 0
	for i := range d.Len() {
		was, is := t.open[d.Group[i]]
		switch {
		case !is && d.Decision[i] == t.anomaly:
			if len(t.open) == maxIncidents {
				beyond++
				continue
			}
			a := t.begin(d, i)
			t.open[d.Group[i]] = a
			alerts = append(alerts, a)
		case is && d.Decision[i] == 0:
			// An end in the future would leave the alert active.
			if was.EndsAt = t.at(d, i); was.EndsAt.After(time.Now()) {
				was.EndsAt = time.Now().UTC()
			}
			if was.EndsAt.Before(was.StartsAt) {
				was.StartsAt = was.EndsAt
			}
			delete(t.open, d.Group[i])
			alerts = append(alerts, was)
		}
	}
	if beyond > 0 {
		t.drop(DroppedBound, beyond, fmt.Errorf("more than %d incidents are open", maxIncidents))
	}
	return alerts, nil
}

// begin returns the alert of an incident that begins with decision i.
func (t *alertmanager) begin(d *batch.Decisions, i int) alert {
	a := alert{
		Labels:   map[string]string{"alertname": "ExoswarmAnomaly", "detector": t.resources.Name},
		StartsAt: t.at(d, i),
		Annotations: map[string]string{
			"summary": describe(t.layout, d, i), "score": strconv.FormatFloat(float64(d.Score[i]), 'f', 3, 32),
		},
	}
	if len(t.layout.Features) == 1 {
		a.Labels["feature"] = t.layout.Features[0]
	}
	for k, value := range t.layout.Names(int(d.Group[i])) {
		a.Labels[t.names[k]] = shorten(value)
	}
	maps.Copy(a.Labels, t.spec.Labels)
	return a
}

// at returns the time of decision i: now, if its text is of another form than the default ones.
func (t *alertmanager) at(d *batch.Decisions, i int) time.Time {
	ns, err := t.clock.Parse(d.Timestamp[i])
	if err != nil {
		return time.Now().UTC()
	}
	return time.Unix(0, ns).UTC()
}

// resend sends the alerts that are open, so that Alertmanager does not resolve them.
func (t *alertmanager) resend(ctx context.Context) error {
	t.mu.Lock()
	var alerts []alert
	for _, g := range slices.Sorted(maps.Keys(t.open)) {
		alerts = append(alerts, t.open[g])
	}
	t.mu.Unlock()
	if len(alerts) == 0 {
		return nil
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return fmt.Errorf("encode alerts: %w", err)
	}
	_, err = t.post(ctx, body)
	return err
}

// describe returns a line for a person: entity, features and score.
func describe(l rows.Layout, d *batch.Decisions, i int) string {
	var b strings.Builder
	columns := l.NameColumns()
	for k, value := range l.Names(int(d.Group[i])) {
		if k > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", columns[k], shorten(value))
	}
	b.WriteString(":")
	for f, name := range l.Features {
		if v, ok := d.Feature(i, f); ok && f < 8 {
			fmt.Fprintf(&b, " %s %s", name, rows.AppendNumber(nil, v, 64))
		}
	}
	at := d.Timestamp[i]
	if _, err := dialect.Float(at, 64); err == nil { // a person does not read unix seconds
		var clock rows.Clock
		if ns, err := clock.Parse(at); err == nil {
			at = time.Unix(0, ns).UTC().Format(time.RFC3339)
		}
	}
	fmt.Fprintf(&b, " at %s, score %.3f", at, d.Score[i])
	if why := d.Explained; l.Explain && why != nil && why.Fault[i] >= 0 {
		f := int(why.Fault[i])
		fmt.Fprintf(&b, ": %s of %s %s the expected %s", why.Kind[i], l.Features[f], batch.Sides[why.Side[i]],
			rows.AppendNumber(nil, rows.Band(d, i, f)[0], 32))
	}
	return b.String()
}
