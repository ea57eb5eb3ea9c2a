package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/exoswarm/exoswarm/cpuagents/kafka"
	"github.com/exoswarm/exoswarm/internal/leak"
)

func TestMain(m *testing.M) { leak.Check(m) }

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
func client(t *testing.T, c *kfake.Cluster, change func(*kafka.Options)) *kafka.Client {
	t.Helper()
	o := kafka.Options{Seed: c.ListenAddrs()[0], Dial: (&net.Dialer{}).DialContext}
	if change != nil {
		change(&o)
	}
	k := kafka.New("t", o)
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

// TestTransactions: records of aborted transactions are left out, and those behind them come.
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
	other := kafka.New("missing", kafka.Options{Seed: c.ListenAddrs()[0], Dial: (&net.Dialer{}).DialContext})
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
	k := kafka.New("t", kafka.Options{Seed: l.Addr().String(), Dial: (&net.Dialer{}).DialContext})
	defer k.Close()
	if _, err := k.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), "is no broker of Kafka") {
		t.Errorf("an HTTP server: %v", err)
	}
}

// TestSASL: brokers that want a password take the right one alone.
func TestSASL(t *testing.T) {
	c := brokers(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "secret"), kfake.Superuser("SCRAM-SHA-256", "s",
		"secret"))
	for name, one := range map[string]struct {
		set func(*kafka.Options)
		ok  bool
	}{
		"plain": {func(o *kafka.Options) { o.SASL = plain.Auth{User: "u", Pass: "secret"}.AsMechanism() }, true},
		"scram": {func(o *kafka.Options) { o.SASL = scram.Auth{User: "s", Pass: "secret"}.AsSha256Mechanism() }, true},
		"wrong": {func(o *kafka.Options) { o.SASL = plain.Auth{User: "u", Pass: "x"}.AsMechanism() }, false},
		"none":  {nil, false},
	} {
		if _, err := client(t, c, one.set).Partitions(t.Context()); (err == nil) != one.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
