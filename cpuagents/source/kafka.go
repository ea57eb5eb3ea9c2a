package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/kafka"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// KafkaSpec says how a topic at kafka://HOST:PORT/TOPIC is read. All partitions are read, by their
// offsets and without a consumer group.
type KafkaSpec struct {
	// Messages and For bound the reading as those of SubjectSpec. A job that is no detector needs
	// one of them.
	Messages uint64  `json:"messages,omitempty"`
	For      float64 `json:"for_s,omitempty"`
	// New leaves out records that were written before the first attempt.
	New bool `json:"new,omitempty"`
	// BatchMessages and BatchSeconds as those of SubjectSpec.
	BatchMessages int     `json:"batch_messages,omitempty"`
	BatchSeconds  float64 `json:"batch_s,omitempty"`
	// TLS is verify or disable; empty means disable.
	TLS string `json:"tls,omitempty"`
	// SASL is plain, scram-sha-256 or scram-sha-512; empty for none. User is the name, and Password
	// refers to a secret.
	SASL     string `json:"sasl,omitempty"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// partitionsEvery is the time between two looks for new partitions.
const partitionsEvery = time.Minute

// kafkaState is the state of a topic in a position.
type kafkaState struct {
	Next map[int32]int64 `json:"next"` // the next offset of each partition
	progress
}

// kafkaFetcher collects the records of a topic into documents.
type kafkaFetcher struct {
	collector
	spec    KafkaSpec
	endless bool
	client  *kafka.Client

	ready  []kafka.Record  // that follow the position
	behind map[int32]int64 // the offsets behind them
	looked time.Time       // for new partitions; zero before the first document and after a failure
}

// newKafkaFetcher returns the fetcher of kafka://HOST:PORT/TOPIC. It makes no connection yet. The
// brokers that the first one names are checked by the guard too.
func newKafkaFetcher(uri string, format rows.Format, spec *KafkaSpec, s Resources) (*kafkaFetcher, error) {
	bad := badSource(uri)
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, bad("write kafka://HOST:PORT/TOPIC")
	}
	topic := strings.TrimPrefix(u.Path, "/")
	if topic == "" || len(topic) > 249 || strings.ContainsFunc(topic, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	}) {
		return nil, bad("topic %s: use letters, digits, '.', '_' and '-'", fault.Quote(topic))
	}
	if spec == nil {
		spec = &KafkaSpec{}
	}
	c, err := newCollector(uri, format, "messages", SubjectSpec{
		Messages: spec.Messages, For: spec.For, BatchMessages: spec.BatchMessages, BatchSeconds: spec.BatchSeconds,
	}, s.Endless)
	if err != nil {
		return nil, err
	}
	f := &kafkaFetcher{collector: c, spec: *spec, endless: s.Endless}
	guard := s.Egress
	if guard == nil {
		guard = &access.Guard{}
	}
	port := cmp.Or(u.Port(), "9092")
	if err := guard.Check(&url.URL{Scheme: "https", Host: net.JoinHostPort(u.Hostname(), port)}); err != nil {
		return nil, bad("%v", err)
	}
	o := kafka.Options{Seed: net.JoinHostPort(u.Hostname(), port)}
	if err := f.secure(&o, u.Hostname(), guard, s.Secrets); err != nil {
		return nil, bad("%v", err)
	}
	f.client = kafka.New(topic, o)
	return f, nil
}

// secure sets the dialer, TLS and SASL.
func (f *kafkaFetcher) secure(o *kafka.Options, host string, guard *access.Guard, secrets *access.Store) error {
	o.Dial = guard.DialContext
	switch f.spec.TLS {
	case "", "disable":
	case "verify":
		o.Dial = dialTLS(guard.DialContext)
	default:
		return fmt.Errorf("tls %q: use verify or disable", f.spec.TLS)
	}
	if f.spec.SASL == "" {
		if f.spec.User != "" || f.spec.Password != "" {
			return errors.New("user and password need sasl: use plain, scram-sha-256 or scram-sha-512")
		}
		return nil
	}
	if secrets == nil {
		secrets = &access.Store{}
	}
	v, err := secrets.At(host).Get(f.spec.Password)
	if err != nil {
		return err
	}
	switch f.spec.SASL {
	case "plain":
		o.SASL = plain.Auth{User: f.spec.User, Pass: v.Reveal()}.AsMechanism()
	case "scram-sha-256":
		o.SASL = scram.Auth{User: f.spec.User, Pass: v.Reveal()}.AsSha256Mechanism()
	case "scram-sha-512":
		o.SASL = scram.Auth{User: f.spec.User, Pass: v.Reveal()}.AsSha512Mechanism()
	default:
		return fmt.Errorf("sasl %q: use plain, scram-sha-256 or scram-sha-512", f.spec.SASL)
	}
	return nil
}

// close implements fetcher.
func (f *kafkaFetcher) close() error {
	f.reopen()
	return nil
}

// reopen implements reopener.
func (f *kafkaFetcher) reopen() {
	f.client.Close()
	f.ready, f.behind, f.looked = nil, nil, time.Time{}
}

// fetch implements fetcher. The first document of a topic is empty and has the offsets at which the
// reading begins. After an error the client is closed, since it is ahead of the position.
func (f *kafkaFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (next position, err error) {
	defer func() {
		if err != nil {
			f.reopen()
		}
	}()
	var st kafkaState
	if err := f.restore(at, &st, &st.progress); err != nil {
		return position{}, err
	}
	if len(f.ready) == 0 && time.Since(f.looked) > partitionsEvery {
		if err := f.partitions(ctx, &st); err != nil {
			return position{}, f.class(err)
		}
		if at.State == nil {
			return f.position(st, st.progress, "", nil)
		}
	}
	gaps, err := f.records(ctx, &st, files.ScratchWriter(doc))
	if err != nil {
		return position{}, f.class(err)
	}
	return f.position(st, st.progress, f.format, gaps)
}

// partitions finds the partitions that the state does not have, and their first offsets; for New
// those of the first look are their ends.
func (f *kafkaFetcher) partitions(ctx context.Context, st *kafkaState) error {
	all, err := f.client.Partitions(ctx)
	if err != nil {
		return err
	}
	end := f.spec.New && len(st.Next) == 0
	if st.Next == nil {
		st.Next = map[int32]int64{}
	}
	for _, p := range all {
		if _, known := st.Next[p]; known {
			continue
		}
		if st.Next[p], err = f.client.Offset(ctx, p, end); err != nil {
			return err
		}
	}
	f.looked = time.Now()
	return nil
}

// records writes records until the document is full or its time is over. It returns the gaps that
// were found: records that the brokers have removed before they were read.
func (f *kafkaFetcher) records(ctx context.Context, st *kafkaState, w io.Writer) (gaps []skipped, err error) {
	wait, d := f.collect(ctx, &st.progress)
	defer d.close()
	for !d.full() {
		if len(f.ready) == 0 {
			for p, offset := range f.behind {
				st.Next[p] = max(st.Next[p], offset)
			}
			f.behind = nil
			if wait.Err() != nil || len(gaps) > 0 {
				break
			}
			if time.Since(f.looked) > partitionsEvery {
				if err := f.partitions(ctx, st); err != nil {
					return nil, err
				}
			}
			got, err := f.client.Fetch(ctx, st.Next)
			if err != nil {
				return nil, err
			}
			f.ready, f.behind = got.Records, got.Next
			for _, p := range got.OutOfRange {
				gap, err := f.gap(ctx, st, p)
				if err != nil {
					return nil, err
				}
				gaps = append(gaps, gap)
			}
			continue
		}
		r := f.ready[0]
		f.ready = f.ready[1:]
		st.Next[r.Partition] = r.Offset + 1
		if len(r.Value) == 0 { // it removes a key
			continue
		}
		d.add(len(r.Value), 1)
		if _, err := w.Write(r.Value); err != nil {
			return nil, err
		}
		if f.format != "ndjson" { // a file each
			break
		}
		if _, err := w.Write([]byte{'\n'}); err != nil {
			return nil, err
		}
	}
	return gaps, ctx.Err()
}

// gap continues a partition whose next record was removed at its first record. Without Endless it
// is an error.
func (f *kafkaFetcher) gap(ctx context.Context, st *kafkaState, partition int32) (skipped, error) {
	lost := st.Next[partition]
	found, err := f.client.Offset(ctx, partition, false)
	if err != nil {
		return skipped{}, err
	}
	reason := fmt.Sprintf("offset %d of the partition is out of range: the brokers have removed its records, or the "+
		"topic was made again; its first offset is %d", lost, found)
	if !f.endless {
		return skipped{}, fault.Input("source %s: partition %d: %s", f.where, partition, reason)
	}
	st.Next[partition] = found
	return skipped{File: fmt.Sprintf("partition %d", partition), Reason: reason}, nil
}

// class returns an error with its class: those of brokers may pass, except refusals.
func (f *kafkaFetcher) class(err error) error {
	var typed *jobs.Error
	switch {
	case errors.As(err, &typed), errors.Is(err, context.Canceled):
		return err
	case slices.ContainsFunc([]error{
		kerr.TopicAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.ClusterAuthorizationFailed,
		kerr.InvalidTopicException, kerr.UnsupportedSaslMechanism,
	}, func(k error) bool { return errors.Is(err, k) }):
		return fault.Input("source %s: %v", f.where, err)
	}
	return jobs.Retry(fmt.Errorf("source %s: %w", f.where, err))
}
