package testkit

import (
	"flag"
	"strconv"

	"go.uber.org/goleak"
)

// CheckLeaks runs the tests of a package and ends the process. It fails when a goroutine is left,
// except goroutines that libraries give no way to end. It is the body of a TestMain.
func CheckLeaks(m interface{ Run() int }) {
	goleak.VerifyTestMain(m,
		// Two of the server's, of the process and of a resolver that was closed.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*dnsAltNameMatcher).run"),
		// Goroutines of a stream that the server (2.15.2) creates while it shuts down: shutdown
		// stops the registered streams, and a new stream is registered last. A server that was not
		// closed has other goroutines too.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		// One of BadgerDB's, of the process.
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// Goroutines that BadgerDB (4.9.6) leaves when it refuses to open a damaged database. A
		// database that is not closed leaves further ones.
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"),
		// One of the store that speaks Google's protocol in tests, of the process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// A goroutine of the NATS client (1.55.0), after an object was put. The client starts it
		// and, when the put has ended, sets the channel that it is about to read to nil. On a busy
		// machine the latter comes first now and then, and the goroutine waits for ever.
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	)
}

// CheckLeaksParallel is CheckLeaks for a package whose tests mostly wait for servers and leases. It
// runs up to n of the tests that call t.Parallel at a time, however many cores there are, unless
// the command line has -parallel.
func CheckLeaksParallel(m interface{ Run() int }, n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			panic(err) // a test binary always has this flag
		}
	}
	CheckLeaks(m)
}
