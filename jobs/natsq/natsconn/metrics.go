package natsconn

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics collects the state and the counters of one connection. It reads them from the client at
// each scrape. To the server it sends one request in clockPeriod, for its clock.
type metrics struct {
	conn *Conn // nil: a description without a connection

	connected, disconnects, reconnects, messages, bytes, errors, expiry, offset *prometheus.Desc

	requests *requests // of the connection, or some that count nothing
}

// Collector returns the metrics of the connection: its state, its losses, and what it has sent and
// received. A nil Conn has a collector that describes the families and collects nothing.
func (c *Conn) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_"+name, help, labels, nil)
	}
	m := &metrics{
		conn: c, requests: newRequests(),
		connected: desc("nats_connected", "1 while the connection to NATS is up, 0 while it is lost. A server that "+
			"stops answering is noticed within 5 s."),
		disconnects: desc("nats_disconnects_total", "Losses of the connection to NATS."),
		reconnects:  desc("nats_reconnects_total", "Restored connections to NATS."),
		messages: desc("nats_messages_total", "Messages that the connection to NATS has sent (out) and received "+
			"(in).", "direction"),
		bytes: desc("nats_bytes_total", "Bytes of the messages that the connection to NATS has sent (out) and "+
			"received (in).", "direction"),
		errors: desc("nats_errors_total", "Errors of the connection to NATS that no caller has waited for: denied "+
			"messages, and other reports of the client such as a slow consumer.", "reason"),
		expiry: desc("credentials_expiry_timestamp_seconds", "Unix time at which the credentials or the client "+
			"certificate of the connection to NATS expire, the earlier one; absent if neither expires."),
		offset: desc("clock_offset_seconds", "How far the clock of this machine is ahead of the NATS server's clock, "+
			"to half of a round trip, as measured at most 15 s ago; absent if the server did not answer."),
	}
	if c != nil && c.requests != nil {
		m.requests = c.requests
	}
	return m
}

// Histograms returns the names of the families that are histograms, for command.FamiliesOf.
func (m *metrics) Histograms() []string { return []string{"exoswarm_nats_request_seconds"} }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.connected, m.disconnects, m.reconnects, m.messages, m.bytes, m.errors, m.expiry,
		m.offset,
	} {
		out <- d
	}
	m.requests.seconds.Describe(out)
	m.requests.failures.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	if m.conn == nil {
		return
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	m.requests.seconds.Collect(out)
	m.requests.failures.Collect(out)
	if ahead, ok := m.conn.clock.offset(context.Background(), m.conn); ok {
		gauge(m.offset, ahead.Seconds())
	}
	up := 0.0
	if m.conn.NC.Status() == nats.CONNECTED {
		up = 1
	}
	gauge(m.connected, up)
	st, r := m.conn.NC.Stats(), m.conn.refused
	counter(m.disconnects, r.losses.Load())
	counter(m.reconnects, st.Reconnects)
	counter(m.messages, st.InMsgs, "in")
	counter(m.messages, st.OutMsgs, "out")
	counter(m.bytes, st.InBytes, "in")
	counter(m.bytes, st.OutBytes, "out")
	counter(m.errors, r.denials.Load(), "denied")
	counter(m.errors, r.slow.Load(), "other")
	if end := r.who.ends(); !end.IsZero() {
		gauge(m.expiry, float64(end.Unix()))
	}
}
