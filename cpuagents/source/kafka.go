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

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// KafkaSpec says how a topic at kafka://HOST:PORT/TOPIC is read. All partitions are read, by their
// offsets and without a consumer group.
type KafkaSpec struct {
	// Messages and For bound the reading as in SubjectSpec. Only a detector may leave out both.
	Messages uint64  `json:"messages,omitempty"`
	For      float64 `json:"for_s,omitempty"`
	// New leaves out records that were written before the first attempt.
	New bool `json:"new,omitempty"`
	// BatchMessages and BatchSeconds are as in SubjectSpec.
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

// partitionsEvery is the poll interval for new partitions.
const partitionsEvery = time.Minute

type kafkaState struct {
	Next map[int32]int64 `json:"next"` // the next offset of each partition
	progress
}

type kafkaFetcher struct {
	collector
	spec    KafkaSpec
	endless bool
	client  remote.Topic

	ready  []remote.Record // that follow the position
	behind map[int32]int64 // the offsets behind them
	looked time.Time       // for new partitions; zero before the first document and after a failure
}

// newKafkaFetcher returns the fetcher of kafka://HOST:PORT/TOPIC. It makes no connection yet. The
// guard also checks the brokers that the first broker names.
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
		return nil, bad("topic %s: use letters, digits, '.', '_' and '-'", access.Quote(topic))
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
	o := remote.TopicOptions{Topic: topic, Seed: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "9092"))}
	if spec.TLS != "" && spec.TLS != "disable" && spec.TLS != "verify" {
		return nil, bad("tls %q: use verify or disable", spec.TLS)
	}
	if o.Dial, err = s.dialer(o.Seed, spec.TLS == "verify"); err != nil {
		return nil, bad("%v", err)
	}
	if err := f.authenticate(&o, u.Hostname(), s.Secrets); err != nil {
		return nil, bad("%v", err)
	}
	if f.client, err = remote.OpenTopic("kafka", o); err != nil {
		return nil, bad("%v", err)
	}
	return f, nil
}

func (f *kafkaFetcher) authenticate(o *remote.TopicOptions, host string, secrets *access.Store) error {
	if f.spec.SASL == "" {
		if f.spec.User != "" || f.spec.Password != "" {
			return errors.New("user and password need sasl: use plain, scram-sha-256 or scram-sha-512")
		}
		return nil
	}
	v, err := secrets.At(host).Get(f.spec.Password)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"plain", "scram-sha-256", "scram-sha-512"}, f.spec.SASL) {
		return fmt.Errorf("sasl %q: use plain, scram-sha-256 or scram-sha-512", f.spec.SASL)
	}
	o.SASL, o.User, o.Password = f.spec.SASL, f.spec.User, v.Reveal()
	return nil
}

func (f *kafkaFetcher) close() error {
	f.reopen()
	return nil
}

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

// partitions finds the partitions that the state does not have, and their first offsets. With New,
// the first call takes their ends.
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
		return skipped{}, access.InputError("source %s: partition %d: %s", f.where, partition, reason)
	}
	st.Next[partition] = found
	return skipped{File: fmt.Sprintf("partition %d", partition), Reason: reason}, nil
}

// class returns an error with its class: an error of a broker may pass, except a refusal.
func (f *kafkaFetcher) class(err error) error {
	return f.classOf(err, "", f.client.Refused(err))
}
