package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/exoswarm/exoswarm/cpuagents/kafka"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// brokers starts brokers that keep a topic "t" with 3 partitions.
func brokers(t *testing.T, o ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(3, "t")}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// client returns a client of the topic.
func client(t *testing.T, c *kfake.Cluster, change func(*remote.TopicOptions)) *kafka.Client {
	t.Helper()
	o := remote.TopicOptions{Topic: "t", Seed: c.ListenAddrs()[0], Dial: (&net.Dialer{}).DialContext}
	if change != nil {
		change(&o)
	}
	k, err := kafka.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// producer returns a client that writes, of another implementation.
func producer(t *testing.T, c *kfake.Cluster, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	p, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// produce writes records number from to to-1 into the partitions in turn.
func produce(t *testing.T, p *kgo.Client, from, to int) {
	t.Helper()
	var all []*kgo.Record
	for i := from; i < to; i++ {
		all = append(all, &kgo.Record{
			Partition: int32(i % 3), Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", i%50)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}},
		})
	}
	if err := p.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// read reads until n records have come, and returns their numbers in order.
func read(t *testing.T, k *kafka.Client, next map[int32]int64, n int) (got []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	last := map[int32]int64{}
	for len(got) < n {
		f, err := k.Fetch(ctx, next)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Records {
			if before, ok := last[r.Partition]; r.Offset < next[r.Partition] || ok && r.Offset <= before {
				t.Errorf("offset %d of partition %d comes after %d", r.Offset, r.Partition, before)
			}
			last[r.Partition] = r.Offset
			number, _, _ := strings.Cut(string(r.Value), " ")
			got = append(got, number)
		}
		for p, offset := range f.Next {
			next[p] = offset
		}
	}
	slices.Sort(got)
	return got
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	slices.Sort(all)
	return all
}

// TestFetch: all records of all partitions come once, in every packing, from any offset on.
func TestFetch(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			c := brokers(t)
			p := producer(t, c, kgo.ProducerBatchCompression(codec))
			for i := 0; i < 3000; i += 500 {
				produce(t, p, i, i+500)
			}
			k := client(t, c, nil)
			all, err := k.Partitions(t.Context())
			if err != nil || !slices.Equal(all, []int32{0, 1, 2}) {
				t.Fatalf("the partitions are %v, %v", all, err)
			}
			if got := read(t, k, map[int32]int64{0: 0, 1: 0, 2: 0}, 3000); !slices.Equal(got, numbers(3000)) {
				t.Errorf("%d records came", len(got))
			}
			// In the middle of a batch.
			f, err := k.Fetch(t.Context(), map[int32]int64{1: 77})
			if err != nil || len(f.Records) == 0 || f.Records[0].Offset != 77 ||
				!strings.HasPrefix(string(f.Records[0].Value), "232 ") {
				t.Errorf("from offset 77: %+v, %v", f.Records[:min(len(f.Records), 1)], err)
			}
			for end, want := range map[bool]int64{false: 0, true: 1000} {
				if at, err := k.Offset(t.Context(), 1, end); err != nil || at != want {
					t.Errorf("the offset is %d, %v, want %d", at, err, want)
				}
			}
		})
	}
}

// TestTransactions: records of aborted transactions are left out, and the records behind them come.
func TestTransactions(t *testing.T) {
	c := brokers(t)
	p := producer(t, c, kgo.TransactionalID("x"))
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, p, i*90, i*90+90)
		if err := p.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	want := numbers(270)
	want = slices.DeleteFunc(want, func(s string) bool { n := 0; fmt.Sscan(s, &n); return n >= 90 && n < 180 })
	if got := read(t, client(t, c, nil), map[int32]int64{0: 0, 1: 0, 2: 0}, 180); !slices.Equal(got, want) {
		t.Errorf("%d records came: %v", len(got), got)
	}
}

// TestLeaderMoves: a partition that moves to another broker fails a call at most, and then
// continues.
func TestLeaderMoves(t *testing.T) {
	c := brokers(t)
	p, k := producer(t, c), client(t, c, nil)
	next, got := map[int32]int64{1: 0}, int64(0)
	for move := range 6 {
		produce(t, p, 0, 30) // 10 for each partition
		for failed := 0; got < int64(move+1)*10; {
			f, err := k.Fetch(t.Context(), next)
			if err != nil {
				if failed++; failed > 1 || move == 0 || !errors.Is(err, kerr.NotLeaderForPartition) {
					t.Fatal(err)
				}
				continue
			}
			for _, r := range f.Records {
				if r.Offset != got {
					t.Fatalf("record %d has offset %d", got, r.Offset)
				}
				got++
			}
			maps.Copy(next, f.Next)
		}
		if err := c.MoveTopicPartition("t", 1, int32(move%2)); err != nil {
			t.Fatal(err)
		}
		if at, err := k.Offset(t.Context(), 1, true); err != nil || at != got {
			t.Fatalf("the end is %d, %v, want %d", at, err, got)
		}
	}
}

// TestErrors: an offset out of range names the partition, and a topic that is missing and brokers
// that are away are errors.
func TestErrors(t *testing.T) {
	c := brokers(t)
	produce(t, producer(t, c), 0, 3)
	k := client(t, c, nil)
	f, err := k.Fetch(t.Context(), map[int32]int64{0: 5000, 1: 0})
	if err != nil || !slices.Equal(f.OutOfRange, []int32{0}) {
		t.Errorf("an offset out of range: %+v, %v", f, err)
	}
	other := client(t, c, func(o *remote.TopicOptions) { o.Topic = "missing" })
	defer other.Close()
	if _, err := other.Partitions(t.Context()); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("a topic that is missing: %v", err)
	}
	c.Close()
	if _, err := k.Fetch(t.Context(), map[int32]int64{0: 0}); err == nil {
		t.Error("brokers that are away: no error")
	}
	if _, err := k.Partitions(t.Context()); err == nil {
		t.Error("brokers that are away: no error")
	}
}

// TestNoBroker: an answer of something else is an error, and allocates nothing of its length.
func TestNoBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_, _ = c.Read(make([]byte, 1000))
	}()
	k, err := kafka.New(remote.TopicOptions{Topic: "t", Seed: l.Addr().String(), Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	_, err = k.Partitions(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is your broker port correct?") {
		t.Errorf("an HTTP server: %v", err)
	}
}

// TestSASL: brokers that want a password take the right one alone.
func TestSASL(t *testing.T) {
	c := brokers(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "secret"), kfake.Superuser("SCRAM-SHA-256", "s",
		"secret"))
	for name, one := range map[string]struct {
		set func(*remote.TopicOptions)
		ok  bool
	}{
		"plain": {func(o *remote.TopicOptions) { o.SASL, o.User, o.Password = "plain", "u", "secret" }, true},
		"scram": {func(o *remote.TopicOptions) { o.SASL, o.User, o.Password = "scram-sha-256", "s", "secret" }, true},
		"wrong": {func(o *remote.TopicOptions) { o.SASL, o.User, o.Password = "plain", "u", "x" }, false},
		"none":  {nil, false},
	} {
		_, err := client(t, c, one.set).Partitions(t.Context())
		if (err == nil) != one.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// batch returns a packed batch of n records, whose first offset is first, with its checksum.
func batch(t *testing.T, first int64, n int, records []byte) []byte {
	t.Helper()
	z, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	packed, codec := z.Compress(&b, records)
	raw := (&kmsg.RecordBatch{
		FirstOffset: first, Length: int32(49 + len(packed)), Magic: 2, Attributes: int16(codec),
		LastOffsetDelta: int32(n - 1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n),
		Records: packed,
	}).AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// serve makes the brokers answer for partition 0 with batches of n records each, from the one of
// the offset that is asked for.
func serve(c *kfake.Cluster, n int64, batches ...[]byte) {
	c.ControlKey(int16(kmsg.Fetch), func(asked kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := asked.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic, part := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		from := req.Topics[0].Partitions[0].FetchOffset
		part.RecordBatches = slices.Concat(batches[min(from/n, int64(len(batches))):]...)
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}

// number appends a number of variable length.
func number(to []byte, v int) []byte { return binary.AppendVarint(to, int64(v)) }

// TestHostileBatches: a few kilobytes that claim many records or headers, or that unpack to much,
// take a bounded amount of memory.
func TestHostileBatches(t *testing.T) {
	const unpacked = 60 << 20
	headers := number([]byte{0, 0, 0, 1, 1}, unpacked/2) // one record with no key and no value
	headers = append(headers, make([]byte, unpacked)...)
	large := number([]byte{0, 0, 0, 1}, unpacked)
	large = append(append(large, make([]byte, unpacked)...), 0)
	var small []byte
	const many = 3 << 20
	for i := range many {
		r := append(number([]byte{0, 0}, i), 1, 2, 'x', 0)
		small = append(number(small, len(r)), r...)
	}
	whole := func(r []byte) []byte { return append(number(nil, len(r)), r...) }
	for name, one := range map[string]struct {
		each    int64 // records of a batch
		batches [][]byte
		come    int // records; 0 for an error
	}{
		"headers":         {1, [][]byte{batch(t, 0, 1, whole(headers))}, 1},
		"records claimed": {unpacked, [][]byte{batch(t, 0, unpacked, make([]byte, unpacked))}, 0},
		"records":         {many, [][]byte{batch(t, 0, many, small)}, many},
		"bytes": {1, [][]byte{
			batch(t, 0, 1, whole(large)), batch(t, 1, 1, whole(large)), batch(t, 2, 1, whole(large)),
			batch(t, 3, 1, whole(large)), batch(t, 4, 1, whole(large)), batch(t, 5, 1, whole(large)),
			batch(t, 6, 1, whole(large)), batch(t, 7, 1, whole(large)), batch(t, 8, 1, whole(large)),
		}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			c := brokers(t)
			serve(c, one.each, one.batches...)
			k := client(t, c, nil)
			next, got := map[int32]int64{0: 0}, 0
			for got < max(one.come, 1) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				f, err := k.Fetch(t.Context(), next)
				runtime.ReadMemStats(&after)
				taken := after.TotalAlloc - before.TotalAlloc
				t.Logf("%d MiB", taken>>20)
				if taken > 512<<20 {
					t.Errorf("a call takes %d MiB", taken>>20)
				}
				if (err == nil) != (one.come > 0) {
					t.Fatal(err)
				}
				if err != nil {
					return
				}
				for _, r := range f.Records {
					if r.Offset != int64(got) {
						t.Fatalf("record %d has offset %d", got, r.Offset)
					}
					got++
				}
				next = f.Next
			}
			if f, err := k.Fetch(t.Context(), next); err != nil || got != one.come || len(f.Records) > 0 {
				t.Errorf("%d records came, then %d, %v", got, len(f.Records), err)
			}
		})
	}
}

// TestBatchTooLarge: a batch that unpacks to more than the bound is an error that says what to do.
func TestBatchTooLarge(t *testing.T) {
	c := brokers(t)
	serve(c, 1, batch(t, 0, 1, make([]byte, 65<<20)))
	_, err := client(t, c, nil).Fetch(t.Context(), map[int32]int64{0: 0})
	if err == nil || !strings.Contains(err.Error(), "write smaller batches") {
		t.Errorf("got %v, want the cure", err)
	}
}
