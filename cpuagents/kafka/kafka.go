// Package kafka reads the partitions of a topic from brokers of Kafka, by their offsets.
//
// It has the five requests that a reader without a consumer group needs, in versions that brokers
// from 2.3 on know. The messages are those of kmsg. The client of the same authors, kgo, would add
// 4 MB to each command, which is more than the budget of exoswarm has left.
package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

// The versions of the requests, the last ones of the fixed format.
const (
	metadataVersion     = 7
	listOffsetsVersion  = 4
	fetchVersion        = 11
	handshakeVersion    = 1
	authenticateVersion = 1
)

const (
	// patience bounds a request that does not wait for records.
	patience = 10 * time.Second
	// fetchWait is how long a broker waits for records.
	fetchWait = 100 * time.Millisecond
	// fetchBytes bounds the records of an answer, and partitionBytes those of a partition in it. A
	// larger batch of records comes alone.
	fetchBytes     = 8 << 20
	partitionBytes = 1 << 20
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 64 << 20
)

// Options configure a Client.
type Options struct {
	// Seed is HOST:PORT of a broker. It names the others.
	Seed string
	// Dial makes the connections. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// SASL authenticates connections; nil for none.
	SASL sasl.Mechanism
}

// Client reads one topic. One goroutine uses it and closes it. After an error it makes new
// connections.
type Client struct {
	o       Options
	topic   string
	format  *kmsg.RequestFormatter
	brokers map[int32]string // addresses by node
	leaders map[int32]int32  // nodes by partition; nil: not known
	conns   map[string]*conn // by address
}

// New returns a client for a topic. It makes no connection yet.
func New(topic string, o Options) *Client {
	return &Client{
		o: o, topic: topic, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("exoswarm")),
		conns: map[string]*conn{},
	}
}

// Close closes all connections. The client may be used again.
func (c *Client) Close() {
	for _, n := range c.conns {
		_ = n.net.Close()
	}
	c.conns, c.leaders = map[string]*conn{}, nil
}

// conn is a connection to a broker. One goroutine at a time uses it.
type conn struct {
	net  net.Conn
	last int32 // correlation id
}

// at returns the connection to an address, and makes it if there is none.
func (c *Client) at(ctx context.Context, address string) (*conn, error) {
	if n := c.conns[address]; n != nil {
		return n, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := c.o.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	n := &conn{net: raw}
	if err := c.authenticate(ctx, n, address); err != nil {
		_ = raw.Close()
		return nil, err
	}
	c.conns[address] = n
	return n, nil
}

// authenticate proves the identity of a client on a new connection.
func (c *Client) authenticate(ctx context.Context, n *conn, address string) error {
	if c.o.SASL == nil {
		return nil
	}
	hand := kmsg.NewPtrSASLHandshakeRequest()
	hand.SetVersion(handshakeVersion)
	hand.Mechanism = c.o.SASL.Name()
	agreed := kmsg.NewPtrSASLHandshakeResponse()
	if err := n.ask(ctx, c.format, hand, agreed); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(agreed.ErrorCode); err != nil {
		return fmt.Errorf("SASL %s: %w", hand.Mechanism, err)
	}
	host, _, _ := net.SplitHostPort(address)
	session, out, err := c.o.SASL.Authenticate(ctx, host)
	for done := false; err == nil && !done; {
		ask := kmsg.NewPtrSASLAuthenticateRequest()
		ask.SetVersion(authenticateVersion)
		ask.SASLAuthBytes = out
		got := kmsg.NewPtrSASLAuthenticateResponse()
		if err := n.ask(ctx, c.format, ask, got); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return fmt.Errorf("SASL %s: %w", hand.Mechanism, err)
		}
		done, out, err = session.Challenge(got.SASLAuthBytes)
	}
	return err
}

// ask sends a request and reads its answer. After an error the connection must be closed.
func (n *conn) ask(ctx context.Context, format *kmsg.RequestFormatter, req kmsg.Request, resp kmsg.Response) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	if err := n.net.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = n.net.SetDeadline(time.Unix(1, 0)) })()
	n.last++
	if _, err := n.net.Write(format.AppendRequest(nil, req, n.last)); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(n.net, head[:]); err != nil {
		return fmt.Errorf("read the answer of %s: %w", n.net.RemoteAddr(), err)
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 4 || size > maxAnswer {
		return fmt.Errorf("%s answers with %d bytes: it is no broker of Kafka, or needs TLS", n.net.RemoteAddr(), size)
	}
	if id := int32(binary.BigEndian.Uint32(head[4:])); id != n.last {
		return fmt.Errorf("%s answers request %d, not %d", n.net.RemoteAddr(), id, n.last)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(n.net, body); err != nil {
		return fmt.Errorf("read the answer of %s: %w", n.net.RemoteAddr(), err)
	}
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("the answer of %s: %w", n.net.RemoteAddr(), err)
	}
	return nil
}

// call is ask with a new connection where there is none. It closes the connection after an error.
func (c *Client) call(ctx context.Context, address string, req kmsg.Request, resp kmsg.Response) error {
	n, err := c.at(ctx, address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := n.ask(ctx, c.format, req, resp); err != nil {
		_ = n.net.Close()
		delete(c.conns, address)
		return err
	}
	return nil
}

// Partitions returns the partitions of the topic in order. It asks the brokers each time.
func (c *Client) Partitions(ctx context.Context) (all []int32, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(metadataVersion)
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.topic
	req.Topics = append(req.Topics, topic)
	got := kmsg.NewPtrMetadataResponse()
	addresses := []string{c.o.Seed} // the others know as well, if the first one is away
	for _, a := range c.brokers {
		if a != c.o.Seed {
			addresses = append(addresses, a)
		}
	}
	for _, a := range addresses {
		if err = c.call(ctx, a, req, got); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	c.brokers, c.leaders = map[int32]string{}, map[int32]int32{}
	for _, b := range got.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, t := range got.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("topic %s: %w", c.topic, err)
		}
		for _, p := range t.Partitions {
			c.leaders[p.Partition] = p.Leader
			all = append(all, p.Partition)
		}
	}
	slices.Sort(all)
	return all, nil
}

// leader returns the address of the broker that has a partition.
func (c *Client) leader(ctx context.Context, partition int32) (string, error) {
	if c.leaders == nil {
		if _, err := c.Partitions(ctx); err != nil {
			return "", err
		}
	}
	node, ok := c.leaders[partition]
	address := c.brokers[node]
	if !ok || address == "" {
		c.leaders = nil
		return "", fmt.Errorf("topic %s, partition %d has no leader now", c.topic, partition)
	}
	return address, nil
}

// Offset returns the offset of the first record of a partition, or the one behind its last record.
func (c *Client) Offset(ctx context.Context, partition int32, end bool) (int64, error) {
	address, err := c.leader(ctx, partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(listOffsetsVersion)
	req.ReplicaID, req.IsolationLevel = -1, 1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.topic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp = partition, -2
	if end {
		part.Timestamp = -1
	}
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	got := kmsg.NewPtrListOffsetsResponse()
	if err := c.call(ctx, address, req, got); err != nil {
		return 0, err
	}
	for _, t := range got.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return p.Offset, c.failed(partition, p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("topic %s, partition %d: the broker does not tell its offset", c.topic, partition)
}

// failed returns the error of a partition. The leaders are asked for again after it.
func (c *Client) failed(partition int32, code int16) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	c.leaders = nil
	return fmt.Errorf("topic %s, partition %d: %w", c.topic, partition, err)
}

// Record is a record of a partition.
type Record struct {
	Partition int32
	Offset    int64
	Value     []byte // nil for a record that removes a key
}

// Fetched are the records that follow some offsets.
type Fetched struct {
	// Records in the order of the partitions, and in that of their offsets.
	Records []Record
	// Next is the offset behind the records of each partition that has given some, also of those
	// that are not in Records, such as those of aborted transactions.
	Next map[int32]int64
	// OutOfRange are the partitions that do not have the offset.
	OutOfRange []int32
}

// Fetch returns the committed records at offsets of partitions. It waits up to 0.1 s for one. The
// brokers are asked at the same time.
func (c *Client) Fetch(ctx context.Context, next map[int32]int64) (f Fetched, err error) {
	ask := map[string][]int32{}
	for p := range next {
		address, err := c.leader(ctx, p)
		if err != nil {
			return f, err
		}
		if _, err := c.at(ctx, address); err != nil {
			c.leaders = nil
			return f, err
		}
		ask[address] = append(ask[address], p)
	}
	type answer struct {
		address string
		got     *kmsg.FetchResponse
		err     error
	}
	answers := make([]answer, 0, len(ask))
	var all sync.WaitGroup
	for address, partitions := range ask {
		answers = append(answers, answer{address: address, got: kmsg.NewPtrFetchResponse()})
		a, n := &answers[len(answers)-1], c.conns[address]
		req := c.fetchRequest(partitions, next)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			a.err = n.ask(ctx, c.format, req, a.got)
		})
	}
	all.Wait()
	f.Next = map[int32]int64{}
	for _, a := range answers {
		if a.err != nil {
			_ = c.conns[a.address].net.Close()
			delete(c.conns, a.address)
			c.leaders = nil
			err = errors.Join(err, a.err)
			continue
		}
		err = errors.Join(err, c.add(&f, a.got, next))
	}
	slices.SortStableFunc(f.Records, func(a, b Record) int { return int(a.Partition) - int(b.Partition) })
	return f, err
}

// fetchRequest returns the request for some partitions.
func (c *Client) fetchRequest(partitions []int32, next map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(fetchVersion)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.IsolationLevel, req.SessionEpoch = 1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = c.topic
	slices.Sort(partitions)
	for _, p := range partitions {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, next[p], partitionBytes
		part.CurrentLeaderEpoch, part.LogStartOffset = -1, -1
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// add adds the records of an answer.
func (c *Client) add(f *Fetched, got *kmsg.FetchResponse, next map[int32]int64) error {
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return fmt.Errorf("topic %s: %w", c.topic, err)
	}
	for _, t := range got.Topics {
		for _, p := range t.Partitions {
			if errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.OffsetOutOfRange) {
				f.OutOfRange = append(f.OutOfRange, p.Partition)
				continue
			}
			if err := c.failed(p.Partition, p.ErrorCode); err != nil {
				return err
			}
			from, known := next[p.Partition]
			if !known {
				return fmt.Errorf("topic %s: the broker answers for partition %d, which was not asked for", c.topic,
					p.Partition)
			}
			behind, err := f.decode(p.Partition, from, p.RecordBatches, p.AbortedTransactions)
			if err != nil {
				return fmt.Errorf("topic %s, partition %d: %w", c.topic, p.Partition, err)
			}
			if behind > from {
				f.Next[p.Partition] = behind
			}
		}
	}
	return nil
}
