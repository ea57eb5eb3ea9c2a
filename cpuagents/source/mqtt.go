package source

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/mqtt"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// MQTTSpec says how the messages of topics at mqtt://HOST:PORT/FILTER or mqtts://HOST:PORT/FILTER
// are read. The broker keeps them for the session of the source while it is not read.
type MQTTSpec struct {
	// Messages and For bound the reading as in SubjectSpec. Only a detector may leave out both.
	Messages uint64  `json:"messages,omitempty"`
	For      float64 `json:"for_s,omitempty"`
	// BatchMessages is the most messages of a document, 1 to 256; 0 means 256. BatchSeconds is as
	// in SubjectSpec.
	BatchMessages int     `json:"batch_messages,omitempty"`
	BatchSeconds  float64 `json:"batch_s,omitempty"`
	// Client is the id of the client and of its session; empty for one of the job.
	Client string `json:"client,omitempty"`
	// Session is how long the broker keeps the session of a source that is not connected, in
	// seconds, 60 to 31,536,000; 0 means 604,800.
	Session int `json:"session_s,omitempty"`
	// TopicAs is the name of a member that each row gets, with the topic of its message; empty for
	// none.
	TopicAs string `json:"topic_as,omitempty"`
	// User is the name, and Password refers to a secret.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

const (
	// mqttRecent is the number of messages that a position has. It is more than the broker may send
	// again.
	mqttRecent = 2 * mqtt.Unacked
	// mqttPayload bounds a message in bytes. A longer one is a reject.
	mqttPayload = 1 << 20
)

type mqttState struct {
	// Recent has the hashes of the last messages that were stored, 8 bytes each, see messageHash.
	// The broker sends a message again if it did not get the acknowledgement.
	Recent []byte `json:"recent,omitempty"`
	progress
}

type mqttFetcher struct {
	collector
	topicAs string
	open    mqtt.Options

	client  *mqtt.Client // nil before the first document and after a failure
	pending []uint16     // of the last document, to be acknowledged when it is stored
}

// newMQTTFetcher returns the fetcher of topics. client is the id of the job's own client. It makes
// no connection yet.
func newMQTTFetcher(uri string, format rows.Format, spec *MQTTSpec, client string, s Resources) (*mqttFetcher, error) {
	bad := badSource(uri)
	// A filter may contain #, so the URI is not parsed as a URL.
	scheme, rest, _ := strings.Cut(uri, "://")
	host, filter, _ := strings.Cut(rest, "/")
	u, err := url.Parse("https://" + host)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return nil, bad("write mqtt://HOST:PORT/FILTER or mqtts://HOST:PORT/FILTER")
	}
	if err := checkFilter(filter); err != nil {
		return nil, bad("filter %s: %v", access.Quote(filter), err)
	}
	if spec == nil {
		spec = &MQTTSpec{}
	}
	batch, session := cmp.Or(spec.BatchMessages, mqtt.Unacked), cmp.Or(spec.Session, 7*24*3600)
	switch {
	case batch < 1 || batch > mqtt.Unacked:
		return nil, bad("batch_messages %d: use 1 to %d", spec.BatchMessages, mqtt.Unacked)
	case session < 60 || session > 31_536_000:
		return nil, bad("session_s %d: use 60 to 31536000", spec.Session)
	case len(spec.Client) > 128 || strings.ContainsFunc(spec.Client, func(c rune) bool { return c < '!' || c > '~' }):
		return nil, bad("client %s: use up to 128 printable ASCII characters", access.Quote(spec.Client))
	case spec.TopicAs != "" && cmp.Or(format, "ndjson") != "ndjson":
		return nil, bad("topic_as is for ndjson: leave it out")
	case spec.Password != "" && spec.User == "":
		return nil, bad("password needs user")
	}
	c, err := newCollector(uri, format, "messages", SubjectSpec{
		Messages: spec.Messages, For: spec.For, BatchMessages: batch, BatchSeconds: spec.BatchSeconds,
	}, s.Endless)
	if err != nil {
		return nil, err
	}
	f := &mqttFetcher{collector: c, topicAs: spec.TopicAs}
	port := cmp.Or(u.Port(), map[string]string{"mqtt": "1883", "mqtts": "8883"}[scheme])
	f.open = mqtt.Options{
		Address: net.JoinHostPort(u.Hostname(), port), ClientID: cmp.Or(spec.Client, client), Filter: filter,
		User: spec.User, SessionExpiry: uint32(session), MaxPayload: mqttPayload,
	}
	if f.open.Dial, err = s.dialer(f.open.Address, scheme == "mqtts"); err != nil {
		return nil, bad("%v", err)
	}
	if spec.Password != "" {
		v, err := s.Secrets.At(u.Hostname()).Get(spec.Password)
		if err != nil {
			return nil, bad("%v", err)
		}
		f.open.Password = []byte(v.Reveal())
	}
	return f, nil
}

// checkFilter returns an error unless a text is a filter of topics.
func checkFilter(filter string) error {
	if filter == "" || len(filter) > 1024 || strings.ContainsAny(filter, "\x00\r\n") {
		return errors.New("use 1 to 1024 bytes, such as plant/+/vibration")
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		if strings.Contains(level, "#") && (level != "#" || i < len(levels)-1) ||
			strings.Contains(level, "+") && level != "+" {
			return errors.New("+ is a level of its own, and # is the last one")
		}
	}
	return nil
}

// close implements fetcher. The session stays on the broker until it expires.
func (f *mqttFetcher) close() error {
	f.reopen()
	return nil
}

func (f *mqttFetcher) reopen() {
	if f.client != nil {
		f.client.Close()
	}
	f.client, f.pending = nil, nil
}

// messageHash identifies a message that the broker may send again. The broker uses its identifiers
// again, so the content counts too.
func messageHash(m mqtt.Message) []byte {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint16(nil, m.ID))
	_, _ = h.Write(append([]byte(m.Topic), 0))
	_, _ = h.Write(m.Payload)
	return h.Sum(nil)
}

func (s *mqttState) has(hash []byte) bool {
	for i := 0; i+len(hash) <= len(s.Recent); i += len(hash) {
		if bytes.Equal(s.Recent[i:i+len(hash)], hash) {
			return true
		}
	}
	return false
}

// fetch implements fetcher. Messages are acknowledged when the journal has their document. A
// message that comes again, because the acknowledgement did not reach the broker, is left out.
//
// The first document of a session is empty: the session begins when it is stored, and what an
// earlier job of the same name has left on the broker is dropped. A session that the broker does
// not have any more is a reject, since messages may be missing.
func (f *mqttFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (next position, err error) {
	defer func() {
		if err != nil {
			f.reopen()
			err = f.class(err)
		}
	}()
	var st mqttState
	if err := f.restore(at, &st, &st.progress); err != nil {
		return position{}, err
	}
	if f.client == nil {
		o := f.open
		o.CleanStart = at.State == nil
		if f.client, err = mqtt.Open(ctx, o); err != nil {
			return position{}, err
		}
		switch {
		case at.State == nil:
			// mosquitto 2.0.11 stores no session on its disk whose last connection began it.
			f.reopen()
			return f.position(st, st.progress, "", nil)
		case !f.client.Present:
			st.Recent = nil
			return f.position(st, st.progress, "", []skipped{{
				File: "session " + o.ClientID, Reason: "the broker does not have it any more: it has expired, " +
					"or the broker has lost its state; messages since the last connection are missing",
			}})
		}
	}
	gaps, err := f.messages(ctx, &st, files.ScratchWriter(doc))
	if err != nil {
		return position{}, err
	}
	return f.position(st, st.progress, f.format, gaps)
}

// messages writes messages until the document is full or its time is over. It returns the messages
// that were too long.
func (f *mqttFetcher) messages(ctx context.Context, st *mqttState, w io.Writer) (gaps []skipped, err error) {
	wait, d := f.collect(ctx, &st.progress)
	defer d.close()
	for !d.full() {
		m, err := f.client.Next(wait)
		if err != nil {
			if ctx.Err() == nil && wait.Err() != nil { // only the document is over
				break
			}
			return nil, err
		}
		hash := messageHash(m)
		if m.Retained || m.Again && st.has(hash) {
			// It is acknowledged at once: a broker that waits for many acknowledgements sends
			// nothing else.
			if err := f.client.Ack(m.ID); err != nil {
				return nil, err
			}
			continue
		}
		if m.ID != 0 {
			f.pending = append(f.pending, m.ID)
			st.Recent = append(st.Recent, hash...)
			st.Recent = st.Recent[max(0, len(st.Recent)-mqttRecent*len(hash)):]
		}
		d.add(len(m.Payload), 1)
		if m.Payload == nil {
			gaps = append(gaps, skipped{File: "topic " + access.Quote(m.Topic), Reason: fmt.Sprintf(
				"a message has %d bytes: use at most %d", m.Size, mqttPayload)})
			continue
		}
		if _, err := w.Write(f.lines(m)); err != nil {
			return nil, err
		}
		if f.format != "ndjson" { // a file each
			break
		}
	}
	return gaps, nil
}

// lines returns the lines of a message, with the topic if the rows get it.
func (f *mqttFetcher) lines(m mqtt.Message) []byte {
	if f.format != "ndjson" {
		return m.Payload
	}
	if f.topicAs == "" {
		return append(m.Payload, '\n')
	}
	name, nerr := json.Marshal(f.topicAs)
	topic, terr := json.Marshal(m.Topic)
	if nerr != nil || terr != nil { // texts have none
		return append(m.Payload, '\n')
	}
	var out []byte
	for line := range bytes.Lines(m.Payload) {
		line = bytes.TrimSpace(line)
		if rest, is := bytes.CutPrefix(line, []byte("{")); is {
			out = append(append(append(append(out, '{'), name...), ':'), topic...)
			if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '}' {
				out = append(out, ',')
			}
			line = rest
		}
		out = append(append(out, line...), '\n')
	}
	return out
}

// stored implements fetcher. It acknowledges the messages of the document. After a failure the
// broker sends them again.
func (f *mqttFetcher) stored(context.Context, position) {
	if f.client != nil {
		_ = f.client.Ack(f.pending...)
	}
	f.pending = nil
}

// class returns an error with its class: a connection may come back, a refusal stays.
func (f *mqttFetcher) class(err error) error {
	var refused *mqtt.RefusedError
	return f.classOf(err, ": correct it, and resume or submit again", errors.As(err, &refused))
}
