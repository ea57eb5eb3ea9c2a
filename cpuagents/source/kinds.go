package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

type kind struct {
	prefix string // of its URIs
	// lasts: a job that lasts can read it. Such a source returns no row twice, and its position alone
	// is enough to continue.
	lasts bool
	open  func(s Resources, job string, i int, src Series, columns rows.ColumnSpec) (fetcher, error)
}

// kinds are all kinds of remote sources. A URI with another beginning is a file.
var kinds = []kind{
	{"http://", false, openHTTP},
	{"https://", false, openHTTP},
	{"watch:", false, func(s Resources, _ string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
		return newFolderWatcher(src.URI, src.Format, src.Watch, s.Files)
	}},
	{"s3://", false, openObjects},
	{"gs://", false, openObjects},
	{SubmitterURI, false, func(s Resources, job string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
		return newSubmittedFetcher(job, src.Format, s)
	}},
	{"nats:", true, func(s Resources, job string, i int, src Series, _ rows.ColumnSpec) (fetcher, error) {
		return newSubjectFetcher(src.URI, src.Format, src.NATS, ConsumerName(job, i), s)
	}},
	{"push:", true, func(s Resources, _ string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
		return newPushFetcher(src.URI, src.Format, src.Push, s)
	}},
	{"kafka://", true, func(s Resources, _ string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
		return newKafkaFetcher(src.URI, src.Format, src.Kafka, s)
	}},
	{"mqtt://", true, openMQTT},
	{"mqtts://", true, openMQTT},
	{"sqlite:", true, openSQL},
	{"postgres://", true, openSQL},
}

func openHTTP(s Resources, _ string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
	return newHTTPFetcher(src.URI, src.Format, src.HTTP, s.Egress, s.Secrets)
}

func openObjects(s Resources, _ string, _ int, src Series, _ rows.ColumnSpec) (fetcher, error) {
	return newObjectWatcher(src.URI, src.Format, src.Object, s.Egress, s.Secrets)
}

func openMQTT(s Resources, job string, i int, src Series, _ rows.ColumnSpec) (fetcher, error) {
	return newMQTTFetcher(src.URI, src.Format, src.MQTT, ConsumerName(job, i), s)
}

func openSQL(s Resources, _ string, _ int, src Series, columns rows.ColumnSpec) (fetcher, error) {
	return newSQLFetcher(src.URI, src.SQL, columns, s.Files, s.Egress, s.Secrets)
}

// kindOf returns the kind of a remote source; nil for a file.
func kindOf(uri string) *kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return strings.HasPrefix(uri, k.prefix) })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

// IsRemote reports whether a source is read document by document, with a journal on the queue. Any
// other source is a file or an object of the queue's own store. Only the beginning of the URI
// counts.
func IsRemote(uri string) bool { return kindOf(uri) != nil }

// Lasts reports whether a job that lasts can read the source of a URI.
func Lasts(uri string) bool {
	k := kindOf(uri)
	return k != nil && k.lasts
}

// LastingKinds returns a text with the kinds of sources that last.
func LastingKinds() string {
	var names []string
	for _, k := range kinds {
		if k.lasts {
			names = append(names, k.prefix)
		}
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// fetcher returns the fetcher of a remote source, number i of a job.
func (s Resources) fetcher(job string, i int, src Series, columns rows.ColumnSpec) (fetcher, error) {
	if err := cmp.Or(src.Format, "csv").Check(); err != nil {
		return nil, fmt.Errorf("series %s: %w", src.Name, err)
	}
	k := kindOf(src.URI)
	if k == nil {
		return nil, badSource(remote.WithoutQuery(src.URI))("it is no remote source")
	}
	return k.open(s, job, i, src, columns)
}

// badSource returns a function that makes errors of a specification, of class jobs.CodeInvalid.
func badSource(uri string) func(text string, args ...any) error {
	return func(text string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "source %s: %s", uri, fmt.Sprintf(text, args...))
	}
}

// poller spaces the polls of a source.
type poller struct {
	limits remote.Limits
	begun  time.Time // the last poll
}

// begin waits until the next poll is due, and counts it. It returns false if no poll is left.
func (p *poller) begin(ctx context.Context, polls *int) (more bool, err error) {
	if *polls == p.limits.Polls {
		return false, nil
	}
	if *polls > 0 {
		if err := retry.Sleep(ctx, p.limits.UntilPoll(p.begun)); err != nil {
			return false, err
		}
	}
	p.begun = time.Now()
	*polls++
	return true, nil
}

// dialer returns the dialer of brokers. The first broker is at an address. The guard checks each
// connection.
func (s Resources) dialer(address string, secured bool) (
	dial func(ctx context.Context, network, address string) (net.Conn, error), err error,
) {
	if err := s.Egress.Check(&url.URL{Scheme: "https", Host: address}); err != nil {
		return nil, err
	}
	if secured {
		return dialTLS(s.Egress.DialContext), nil
	}
	return s.Egress.DialContext, nil
}

// dialTLS returns a dialer that verifies the host of the address by TLS 1.2 or later.
func dialTLS(dial func(ctx context.Context, network, address string) (net.Conn, error),
) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name})
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return secured, nil
	}
}
