package cpuagents_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// broker starts a broker of Kafka with a topic "t" of 3 partitions, and returns a function that
// writes records. Rows of an entity go to one partition.
func broker(t *testing.T) (c *kfake.Cluster, put func(rows ...string)) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return c, func(rows ...string) {
		t.Helper()
		var all []*kgo.Record
		for _, r := range rows {
			_, key, _ := strings.Cut(r, `"id":`)
			all = append(all, &kgo.Record{Key: []byte(key), Value: []byte(strings.TrimSuffix(r, "\n"))})
		}
		if err := p.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDetectorKafka: a detector over a topic that is stopped at random moments decides each record
// once, and counts records that the brokers have removed.
func TestDetectorKafka(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b, put := broker(t)
	uri := "kafka://" + b.ListenAddrs()[0] + "/t"
	job := detectorJob(t, "topic", 40, []source.Series{{
		Name: "k", URI: uri, Kafka: &source.KafkaSpec{BatchSeconds: 0.01},
	}}, nil)
	all := detectorRows(2000)
	r := rand.New(rand.NewPCG(13, 13))
	now := c.detect(t, job)
	stops := 0
	for part := range slices.Chunk(all, 50) {
		put(part...)
		randomPause(t, r, 20)
		if r.IntN(4) == 0 {
			stops++
			now.end(t, jobs.ErrDrain)
			now = c.detect(t, job)
		}
	}
	c.awaitDecisions(t, "topic", len(all))
	now.end(t, jobs.ErrFinish)
	seen := map[string]bool{}
	for _, d := range c.decisionsOf(t, "topic") {
		if seen[d] {
			t.Errorf("twice: %s", d)
		}
		seen[d] = true
	}
	if p := now.result; len(seen) != len(all) || p.Rows != 2000 || p.Decisions != 2000 || stops < 3 {
		t.Errorf("after %d stops %d rows have a decision: %+v", stops, len(seen), p)
	}
}

// TestDetectorNoBroker: a detector whose broker is gone waits, counts the failures, and continues
// with the broker that comes. Offsets that this one does not have are a reject each, and so is a
// record that is no row.
func TestDetectorNoBroker(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b, put := broker(t)
	address := b.ListenAddrs()[0]
	uri := "kafka://" + address + "/t"
	d := c.detect(t, detectorJob(t, "away", 4, []source.Series{{Name: "k", URI: uri}}, nil))
	for i := range 6 {
		put(fmt.Sprintf("{\"timestamp\":%d,\"value\":1,\"id\":\"a\"}", i))
	}
	c.awaitDecisions(t, "away", 6)
	b.Close()
	testkit.Until(t, "a failure of the source", func() bool {
		p := d.progress.Load()
		return p != nil && p.SourceFailures > 0
	})
	port := 0
	for _, digit := range address[strings.LastIndex(address, ":")+1:] {
		port = 10*port + int(digit-'0')
	}
	again, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "t"), kfake.Ports(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	p, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for _, v := range []string{"{\"timestamp\":7,\"value\":1,\"id\":\"a\"}", "no row", ""} {
		r := &kgo.Record{Key: []byte("\"a\"}"), Value: []byte(v)}
		if err := p.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitDecisions(t, "away", 7)
	d.end(t, jobs.ErrFinish)
	if got := d.result; got.Rows != 7 || got.Rejected != 2 || got.SourceFailures == 0 {
		t.Errorf("the result is %+v", got)
	}
}
