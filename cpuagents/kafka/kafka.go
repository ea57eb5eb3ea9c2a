// Package kafka reads the partitions of a topic from brokers of Kafka, by their offsets.
//
// Package kgo makes the connections and authenticates them. It agrees on the versions of requests,
// waits where a broker throttles, finds brokers, repeats requests, and has the codecs. Two parts of
// kgo are not used:
//   - Its consumer. It reads ahead, and after a removed offset it continues at the first one without
//     a report. A caller of this package counts each such gap.
//   - Its decoder of batches. It allocates 200 bytes for each record that a batch claims, and 40 for
//     each header. An answer of 64 KiB then takes gigabytes. The decoder here stops at a number of
//     bytes and records, and leaves the others for the next request.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
)

const (
	// patience bounds a request that does not wait for records, with its repetitions.
	patience = 10 * time.Second
	// retries is the number of repetitions of such a request. The caller repeats it later.
	retries = 2
	// fetchWait is how long a broker waits for records.
	fetchWait = 100 * time.Millisecond
	// fetchBytes bounds the records of an answer, and partitionBytes the records of one partition
	// in it. A larger batch of records comes alone.
	fetchBytes     = 8 << 20
	partitionBytes = 1 << 20
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 64 << 20
)

// Client implements remote.Topic.
type Client struct {
	o       remote.TopicOptions
	sasl    sasl.Mechanism // nil for none
	brokers *kgo.Client    // nil before the first request
	codecs  kgo.Decompressor
	id      [16]byte        // of the topic
	leaders map[int32]int32 // nodes by partition; nil: not known
	fetches int
}

// New returns a client for a topic. It makes no connection yet.
func New(o remote.TopicOptions) (*Client, error) {
	c := &Client{o: o}
	switch o.SASL {
	case "":
	case "plain":
		c.sasl = plain.Auth{User: o.User, Pass: o.Password}.AsMechanism()
	case "scram-sha-256":
		c.sasl = scram.Auth{User: o.User, Pass: o.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		c.sasl = scram.Auth{User: o.User, Pass: o.Password}.AsSha512Mechanism()
	default:
		return nil, fmt.Errorf("sasl %q: use plain, scram-sha-256 or scram-sha-512", o.SASL)
	}
	return c, nil
}

// Refused implements remote.Topic.
func (*Client) Refused(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.TopicAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.ClusterAuthorizationFailed,
		kerr.InvalidTopicException, kerr.UnsupportedSaslMechanism,
	}, func(k error) bool { return errors.Is(err, k) })
}

// Close implements remote.Topic.
func (c *Client) Close() {
	if c.brokers != nil {
		c.brokers.Close()
	}
	c.brokers, c.leaders = nil, nil
}

func (c *Client) open() (err error) {
	if c.brokers != nil {
		return nil
	}
	o := []kgo.Opt{
		kgo.SeedBrokers(c.o.Seed), kgo.ClientID("exoswarm"), kgo.DisableClientMetrics(),
		kgo.RequestRetries(retries), kgo.RetryTimeout(patience), kgo.RequestTimeoutOverhead(patience),
		kgo.BrokerMaxReadBytes(maxAnswer), kgo.FetchMaxBytes(fetchBytes), kgo.MaxDecompressBatchBytes(maxUnpacked),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return c.o.Dial(ctx, network, address)
		}),
	}
	if c.sasl != nil {
		o = append(o, kgo.SASL(c.sasl))
	}
	if c.brokers, err = kgo.NewClient(o...); err != nil {
		return err
	}
	// The codecs of a client are bounded; the codecs of kgo.DefaultDecompressor are not.
	c.codecs = c.brokers.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	return nil
}

// Partitions implements remote.Topic.
func (c *Client) Partitions(ctx context.Context) (all []int32, err error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.o.Topic
	req.Topics = append(req.Topics, topic)
	got, err := req.RequestWith(ctx, c.brokers)
	if err != nil {
		return nil, fmt.Errorf("topic %s: ask for its partitions: %w", c.o.Topic, err)
	}
	c.leaders = map[int32]int32{}
	for _, t := range got.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("topic %s: %w", c.o.Topic, err)
		}
		c.id = t.TopicID
		for _, p := range t.Partitions {
			c.leaders[p.Partition] = p.Leader
			all = append(all, p.Partition)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Offset implements remote.Topic.
func (c *Client) Offset(ctx context.Context, partition int32, end bool) (int64, error) {
	if err := c.open(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = 1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.o.Topic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp = partition, -2
	if end {
		part.Timestamp = -1
	}
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	got, err := req.RequestWith(ctx, c.brokers) // which finds the leader
	if err != nil {
		return 0, fmt.Errorf("topic %s, partition %d: ask for its offset: %w", c.o.Topic, partition, err)
	}
	for _, t := range got.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return p.Offset, c.failed(partition, p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("topic %s, partition %d: the broker does not tell its offset", c.o.Topic, partition)
}

// failed returns the error of a partition. The leaders are asked for again after it.
func (c *Client) failed(partition int32, code int16) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	c.leaders = nil
	return fmt.Errorf("topic %s, partition %d: %w", c.o.Topic, partition, err)
}

// Fetch implements remote.Topic. It waits up to 0.1 s for a record. The
// leaders of the partitions are asked at the same time. Records beyond a bound of memory are left
// for the next call.
func (c *Client) Fetch(ctx context.Context, next map[int32]int64) (f remote.Records, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.leaders == nil {
		if _, err := c.Partitions(ctx); err != nil {
			return f, err
		}
	}
	ask := map[int32][]int32{} // partitions by node
	for p := range next {
		node, ok := c.leaders[p]
		if !ok || node < 0 {
			c.leaders = nil
			return f, fmt.Errorf("topic %s, partition %d has no leader now", c.o.Topic, p)
		}
		ask[node] = append(ask[node], p)
	}
	type answer struct {
		got *kmsg.FetchResponse
		err error
	}
	answers := make([]answer, 0, len(ask))
	var all sync.WaitGroup
	for node, partitions := range ask {
		answers = append(answers, answer{})
		a, req := &answers[len(answers)-1], c.fetchRequest(partitions, next)
		all.Go(func() { a.got, a.err = req.RequestWith(ctx, c.brokers.Broker(int(node))) })
	}
	all.Wait()
	c.fetches++
	d := decoder{codecs: c.codecs, asked: maps.Clone(next), Records: remote.Records{Next: map[int32]int64{}}}
	for _, a := range answers {
		if a.err != nil {
			c.leaders = nil
			err = errors.Join(err, fmt.Errorf("topic %s: fetch: %w", c.o.Topic, a.err))
			continue
		}
		err = errors.Join(err, c.add(&d, a.got))
	}
	slices.SortStableFunc(d.Records.Records, func(a, b remote.Record) int {
		return int(a.Partition) - int(b.Partition)
	})
	return d.Records, err
}

// fetchRequest returns the request for some partitions. Each request begins with another partition,
// since brokers and decoder leave out the last partitions when there are too many records.
func (c *Client) fetchRequest(partitions []int32, next map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.IsolationLevel = 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = c.o.Topic, c.id
	slices.Sort(partitions)
	for i := range partitions {
		p := partitions[(i+c.fetches)%len(partitions)]
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, next[p], partitionBytes
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func (c *Client) add(d *decoder, got *kmsg.FetchResponse) error {
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		c.leaders = nil
		return fmt.Errorf("topic %s: %w", c.o.Topic, err)
	}
	for _, t := range got.Topics {
		for _, p := range t.Partitions {
			from, asked := d.asked[p.Partition]
			if !asked {
				return fmt.Errorf("topic %s: the broker answers for partition %d twice, or was not asked for it",
					c.o.Topic, p.Partition)
			}
			delete(d.asked, p.Partition)
			if errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.OffsetOutOfRange) {
				d.OutOfRange = append(d.OutOfRange, p.Partition)
				continue
			}
			if err := c.failed(p.Partition, p.ErrorCode); err != nil {
				return err
			}
			behind, err := d.decode(p.Partition, from, p.RecordBatches, p.AbortedTransactions)
			if err != nil {
				return fmt.Errorf("topic %s, partition %d: %w", c.o.Topic, p.Partition, err)
			}
			if behind > from {
				d.Next[p.Partition] = behind
			}
		}
	}
	return nil
}
