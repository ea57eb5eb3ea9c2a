package remote

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

// Topic reads one topic of a broker by the offsets of its partitions. One goroutine uses it and
// closes it.
type Topic interface {
	// Partitions returns the partitions of the topic in order. It asks the brokers each time.
	Partitions(ctx context.Context) ([]int32, error)
	// Offset returns the offset of the first record of a partition, or the offset behind its last
	// record.
	Offset(ctx context.Context, partition int32, end bool) (int64, error)
	// Fetch returns the committed records at offsets of partitions. It waits a short time for one.
	Fetch(ctx context.Context, next map[int32]int64) (Records, error)
	// Refused reports whether err is a refusal of the brokers, which a repetition does not change.
	Refused(err error) bool
	// Close closes all connections. The topic may be used again.
	Close()
}

// TopicOptions configure a Topic.
type TopicOptions struct {
	// Topic is the name of the topic. Seed is HOST:PORT of a broker, which names the other brokers.
	Topic, Seed string
	// Dial makes the connections. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// SASL is plain, scram-sha-256 or scram-sha-512; empty for none.
	SASL, User, Password string
}

// Record is a record of a partition.
type Record struct {
	Partition int32
	Offset    int64
	Value     []byte // nil for a record that removes a key
}

// Records are the records that follow some offsets.
type Records struct {
	// Records in the order of partitions, then of offsets.
	Records []Record
	// Next is the offset behind the records of each partition that has given some, also behind
	// records that are not in Records, such as the records of aborted transactions.
	Next map[int32]int64
	// OutOfRange are the partitions that do not have the offset.
	OutOfRange []int32
}

// TopicDriver returns a topic. It makes no connection yet.
type TopicDriver func(o TopicOptions) (Topic, error)

var topics struct {
	sync.RWMutex
	of map[string]TopicDriver // by scheme
}

// RegisterTopics registers the driver of topics for a scheme. It panics if the scheme has a driver
// already.
func RegisterTopics(scheme string, d TopicDriver) {
	topics.Lock()
	defer topics.Unlock()
	if _, is := topics.of[scheme]; is {
		panic("remote: two drivers for " + scheme)
	}
	if topics.of == nil {
		topics.of = map[string]TopicDriver{}
	}
	topics.of[scheme] = d
}

// OpenTopic returns a topic with the driver of a scheme. The error wraps ErrNoDriver if there is
// none.
func OpenTopic(scheme string, o TopicOptions) (Topic, error) {
	topics.RLock()
	d, is := topics.of[scheme]
	topics.RUnlock()
	if !is {
		return nil, fmt.Errorf("%s: %w", scheme, objectstore.ErrNoDriver)
	}
	return d(o)
}
