package bulk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// FetcherOptions configure NewFetcher. The zero value of a field has the default that its comment
// states.
type FetcherOptions struct {
	// Allow has the networks that may be connected to; nil: loopback addresses.
	Allow []netip.Prefix
	// TLS checks the certificates of servers with TLS; nil: the certificates of the system do.
	TLS *tls.Config
	// TLSOnly refuses servers without TLS that are not on a loopback address.
	TLSOnly bool
	// Streams is the number of connections for a payload; 0: 4. A payload has a stream for each MiB
	// at most.
	Streams int
	// Dial bounds the time of a dial with its greeting; 0: 5 s. Slow bounds the time for 1 MiB; 0:
	// 15 s.
	Dial, Slow time.Duration
}

// Loopback are the networks of FetcherOptions.Allow that is nil.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// Fetcher reads payloads. Its methods may be called from several goroutines.
type Fetcher struct {
	o FetcherOptions

	mu     sync.Mutex
	idle   map[Place][]*conn
	closed bool
}

// Bounds of the connections that wait for the next payload, of each place. A server ends them after
// two minutes.
const (
	maxIdle = 64
	idleFor = time.Minute
)

// tries is how often a part is asked for within a call: a connection that was idle may be gone.
const tries = 3

// NewFetcher returns a Fetcher without connections. The caller closes it.
func NewFetcher(o FetcherOptions) *Fetcher {
	if o.Allow == nil {
		o.Allow = Loopback()
	}
	if o.Streams == 0 {
		o.Streams = 4
	}
	if o.Dial == 0 {
		o.Dial = 5 * time.Second
	}
	if o.Slow == 0 {
		o.Slow = 15 * time.Second
	}
	return &Fetcher{o: o, idle: map[Place][]*conn{}}
}

// Close closes the connections that no call uses. Later calls keep none.
func (f *Fetcher) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, all := range f.idle {
		for _, c := range all {
			_ = c.Close()
		}
	}
	clear(f.idle)
}

// Fetch reads a payload into memory that is b.Bytes long, and compares it with the sums of b. After
// an error the memory is undefined. It fails with the cause of ctx when that ends.
func (f *Fetcher) Fetch(ctx context.Context, b swarms.Bulk, into []byte) error {
	if len(into) != b.Bytes || len(b.Sums) != 4*b.Chunks() || b.Bytes == 0 {
		return fmt.Errorf("fetch %d bytes into %d, with %d bytes of sums: %w", b.Bytes, len(into), len(b.Sums),
			ErrDamaged)
	}
	chunks := b.Chunks()
	n := min(f.o.Streams, chunks)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := f.part(inner, b, into, i*chunks/n, (i+1)*chunks/n); err != nil {
				cancel(err) // the others are of no use, and their errors tell nothing
			}
		})
	}
	all.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case inner.Err() != nil:
		return fmt.Errorf("payload %s at %s: %w", b.ID, b.Place, context.Cause(inner))
	}
	return nil
}

// part reads the chunks from first on and before end. Chunks that have arrived are not asked for
// again.
func (f *Fetcher) part(ctx context.Context, b swarms.Bulk, into []byte, first, end int) (err error) {
	for range tries {
		var c *conn
		if c, err = f.connect(ctx, Place{b.Place, b.TLS}); err != nil {
			return err
		}
		used := c.requests > 0
		var done int
		done, err = f.read(ctx, c, b, into, first, end)
		if first += done; err == nil {
			f.keep(c)
			return nil
		}
		_ = c.Close()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrUnknown), errors.Is(err, ErrDisk):
			return err
		case used:
			f.forget(c.place) // the server was started again, so the others are gone too
		}
	}
	return err
}

// read asks for chunks and reads them. It returns how many have arrived as they should.
func (f *Fetcher) read(ctx context.Context, c *conn, b swarms.Bulk, into []byte, first, end int) (done int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	from, to := first*swarms.BulkChunk, min(end*swarms.BulkChunk, b.Bytes)
	r := request{id: b.ID, offset: int64(from), length: int64(to - from)}
	if err := f.deadline(ctx, c); err != nil {
		return 0, err
	}
	if _, err := c.Write(r.encode(nil, b.Token, c.nonce, c.requests)); err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	c.requests++
	if err := readAnswer(c, r.length); err != nil {
		return 0, err
	}
	for ; first < end; first++ {
		at := first * swarms.BulkChunk
		chunk := into[at:min(at+swarms.BulkChunk, b.Bytes)]
		if err := f.deadline(ctx, c); err != nil {
			return done, err
		}
		if _, err := io.ReadFull(c, chunk); err != nil {
			return done, fmt.Errorf("read byte %d and on: %w", at, err)
		}
		if got := swarms.BulkSum(chunk); got != b.Sum(first) {
			return done, fmt.Errorf("bytes %d to %d have the sum %#x, not %#x: %w", at, at+len(chunk)-1, got,
				b.Sum(first), ErrDamaged)
		}
		done++
	}
	return done, nil
}

// deadline bounds the next read. A context that has ended before the call is seen here, one that
// ends after it sets a deadline in the past.
func (f *Fetcher) deadline(ctx context.Context, c *conn) error {
	if err := c.SetDeadline(time.Now().Add(f.o.Slow)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// conn is a connection whose greeting was read.
type conn struct {
	net.Conn
	place    Place
	nonce    []byte
	requests uint64
	since    time.Time // when it became idle
}

// connect returns an idle connection, or dials.
func (f *Fetcher) connect(ctx context.Context, p Place) (*conn, error) {
	for {
		f.mu.Lock()
		all := f.idle[p]
		if len(all) == 0 {
			f.mu.Unlock()
			break
		}
		c := all[len(all)-1]
		f.idle[p] = all[:len(all)-1]
		f.mu.Unlock()
		if time.Since(c.since) < idleFor {
			return c, nil
		}
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, f.o.Dial)
	defer cancel()
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return f.permit(address, p.TLS)
	}}
	raw, err := d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, place: p}
	if p.TLS {
		c.Conn = tls.Client(raw, f.config(p))
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.nonce, err = readGreeting(c); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// config returns the configuration of TLS for a place.
func (f *Fetcher) config(p Place) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.o.TLS != nil {
		c = f.o.TLS.Clone()
	}
	if host, _, err := net.SplitHostPort(p.Address); err == nil {
		c.ServerName = host
	}
	return c
}

// permit returns ErrNotAllowed unless an address, after the resolution of its name, may be connected
// to.
func (f *Fetcher) permit(address string, secure bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", address, ErrNotAllowed)
	}
	ip := at.Addr().Unmap().WithZone("")
	if f.o.TLSOnly && !secure && !ip.IsLoopback() {
		return fmt.Errorf("%s without TLS: %w", ip, ErrNotAllowed)
	}
	for _, p := range f.o.Allow {
		if p.Contains(ip) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", ip, ErrNotAllowed)
}

// keep stores a connection for the next payload.
func (f *Fetcher) keep(c *conn) {
	c.since = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.idle[c.place]) >= maxIdle {
		_ = c.Close()
		return
	}
	f.idle[c.place] = append(f.idle[c.place], c)
}

// forget closes the idle connections to a place.
func (f *Fetcher) forget(p Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.idle[p] {
		_ = c.Close()
	}
	delete(f.idle, p)
}
