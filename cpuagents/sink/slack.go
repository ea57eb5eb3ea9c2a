package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

const (
	// maxLines bounds the anomalies that a message lists; it counts the rest.
	maxLines = 20
	// lineBytes bounds a line. A section of Slack has at most 3000 characters.
	lineBytes = 140
)

// slack posts anomalies as messages of Slack's Block Kit to an incoming webhook. Anomalies that
// come while a message waits are merged into the next one.
type slack struct {
	*notifier
	layout rows.Layout
}

// newSlack returns the sink of slack:URL. The path of the URL is a secret, so it must refer to one.
func newSlack(b base, l rows.Layout, s Resources) (Sink, error) {
	address := strings.TrimPrefix(b.spec.URI, "slack:")
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		b.where = "slack"
	} else {
		b.where = "slack:" + u.Scheme + "://" + u.Host
	}
	if !strings.Contains(address, "{env:") && !strings.Contains(address, "{file:") {
		return nil, b.bad("the path of the URL is a secret: write slack:https://HOST/{env:NAME} or {file:NAME}, and " +
			"keep the path with the agent")
	}
	n, err := newNotifier(b, s, "slack", address, "application/json", cmp.Or(b.spec.Rate, 1))
	if err != nil {
		return nil, err
	}
	t := &slack{notifier: n, layout: l}
	n.merges, n.encode = true, t.body
	return t, nil
}

// Send implements Sink. It sends the decisions for the last candidate.
func (t *slack) Send(_ context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.resumed {
		return nil
	}
	m := message{first: number, last: number}
	for i := range d.Len() {
		if d.Decision[i] != t.anomaly {
			continue
		}
		if len(m.lines) == maxLines {
			m.more++
			continue
		}
		line := []rune(describe(t.layout, d, i))
		if len(line) > lineBytes {
			line = append(line[:lineBytes-1], '…')
		}
		m.lines = append(m.lines, string(line))
	}
	if len(m.lines) == 0 {
		return nil
	}
	return t.put(m)
}

// escaped are the characters that Slack's texts give a meaning.
var escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (t *slack) body(m message) []byte {
	count := len(m.lines) + m.more
	title := fmt.Sprintf("%s: %d anomalies", t.resources.Name, count)
	if count == 1 {
		title = t.resources.Name + ": an anomaly"
	}
	lines := "• " + escaped.Replace(strings.Join(m.lines, "\n• "))
	if m.more > 0 {
		lines += fmt.Sprintf("\nand %d more", m.more)
	}
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type block struct {
		Type string `json:"type"`
		Text text   `json:"text"`
	}
	data, err := json.Marshal(struct {
		Text   string  `json:"text"`
		Blocks []block `json:"blocks"`
	}{escaped.Replace(title), []block{
		{"header", text{"plain_text", title}}, {"section", text{"mrkdwn", lines}},
	}})
	if err != nil { // texts have none
		return []byte("{}")
	}
	return data
}
