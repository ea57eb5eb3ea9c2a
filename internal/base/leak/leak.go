// Package leak holds tests to ending every goroutine that they start, except those that libraries
// give no way to end.
package leak

import (
	"flag"
	"strconv"

	"go.uber.org/goleak"
)

// Check runs the tests of a package and ends the process; it fails when a goroutine is left. It is
// the body of a TestMain.
func Check(m interface{ Run() int }) {
	goleak.VerifyTestMain(m,
		// Two of the server's, of the process and of a resolver that was closed.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*dnsAltNameMatcher).run"),
		// One of BadgerDB's, of the process.
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// Two of BadgerDB's (4.9.6), of a database that it has refused to open because it is
		// damaged. One that is not closed leaves others too.
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"),
		// One of the store that speaks Google's protocol in tests, of the process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// The client's (1.55.0), after an object was put: it starts this goroutine and sets the
		// channel that it is about to read to nil when the put has ended; on a busy machine the
		// latter comes first now and then, and the goroutine waits for ever.
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	)
}

// CheckParallel is Check for a package whose tests mostly wait for servers and leases. It runs up to n
// of the tests that call t.Parallel at a time, however many cores there are, unless the command line
// has -parallel.
func CheckParallel(m interface{ Run() int }, n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			panic(err) // a test binary always has this flag
		}
	}
	Check(m)
}
