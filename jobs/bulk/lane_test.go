package bulk

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestFetch compares payloads of any length over any number of streams with what was put.
func TestFetch(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testFetch(t, aSpool(t, nil)) })
	t.Run("disk", func(t *testing.T) { testFetch(t, diskSpool(t)) })
}

// diskSpool returns a spool in a folder of the operating system.
func diskSpool(t *testing.T) *Spool {
	t.Helper()
	s, err := OpenSpool(SpoolOptions{Dir: t.TempDir(), LeastFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestShort: a file that was cut below the server is an error of the fetch, and nothing is made up.
func TestShort(t *testing.T) {
	s := diskSpool(t)
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	srv := serve(t, s, func(o *ServerOptions) { o.Metrics = m })
	b := put(t, s, random(3*swarms.BulkChunk, 1))
	f, _, err := s.open(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.file(b.ID), headSize+swarms.BulkChunk+5); err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	_ = there.Close()
	if done, err := srv.sendFile(here, f, request{length: 5}); done || err != nil {
		t.Errorf("to a connection without a file descriptor: %v, %v", done, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { _, _ = io.Copy(io.Discard, from) })
	if done, err := srv.sendFile(to, f, request{length: int64(b.Bytes)}); done || !errors.Is(err, ErrDisk) {
		t.Errorf("a short file is sent: %v, %v", done, err)
	}
	if err := errors.Join(f.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, aFetcher(t, FetcherOptions{}), b); !errors.Is(err, ErrDisk) {
		t.Errorf("a short file is fetched: %v", err)
	}
	if counted(t, r, "exoswarm_bulk_requests_total", "disk") < 2 {
		t.Error("the failures are not counted")
	}
}

func testFetch(t *testing.T, s *Spool) {
	serve(t, s, nil)
	var all sync.WaitGroup
	const chunk = swarms.BulkChunk
	for i, n := range []int{1, 2, chunk - 1, chunk, chunk + 1, 5*chunk + 7} {
		data := random(n, uint64(i))
		b := put(t, s, data)
		for _, streams := range []int{1, 2, 3, 16} {
			f := aFetcher(t, FetcherOptions{Streams: streams})
			all.Go(func() {
				for range 2 { // the second time over connections that were idle
					if got, err := fetch(t, f, b); err != nil || !bytes.Equal(got, data) {
						t.Errorf("%d bytes over %d streams: equal %v, %v", n, streams, bytes.Equal(got, data), err)
					}
				}
			})
		}
	}
	all.Wait()
}

// TestRefused: wrong tokens, unknown ids and wrong lengths get nothing.
func TestRefused(t *testing.T) {
	s := aSpool(t, nil)
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s, func(o *ServerOptions) { o.Metrics = m })
	b := put(t, s, random(swarms.BulkChunk+1, 1))
	f := aFetcher(t, FetcherOptions{})
	if _, err := fetch(t, f, b); err != nil {
		t.Error(err)
	}
	// The server counts a part behind its write, which the fetcher may have read before.
	got := 0.0
	for end := time.Now().Add(10 * time.Second); got != float64(b.Bytes) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		got = counted(t, r, "exoswarm_bulk_sent_bytes_total", "")
	}
	if got != float64(b.Bytes) {
		t.Errorf("%v bytes are counted, want %d", got, b.Bytes)
	}
	for name, change := range map[string]func(*swarms.Bulk){
		"token":  func(b *swarms.Bulk) { b.Token = bytes.Repeat([]byte{1}, swarms.BulkToken) },
		"id":     func(b *swarms.Bulk) { b.ID = "00" + b.ID[2:] },
		"length": func(b *swarms.Bulk) { b.Bytes++ },
	} {
		wrong := b
		change(&wrong)
		if _, err := fetch(t, f, wrong); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: error %v, want %v", name, err, ErrUnknown)
		}
	}
	if got := counted(t, r, "exoswarm_bulk_requests_total", "unknown"); got == 0 {
		t.Error("no refusal is counted")
	}
	wrong := b
	wrong.Sums = append([]byte(nil), b.Sums...)
	wrong.Sums[0] ^= 1
	if _, err := fetch(t, f, wrong); !errors.Is(err, ErrDamaged) {
		t.Errorf("another sum: error %v, want %v", err, ErrDamaged)
	}
}

// counted returns the sum of a family of counters in a registry.
func counted(t *testing.T, r *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestReplay repeats a request on another connection, where it is of no use.
func TestReplay(t *testing.T) {
	s := aSpool(t, nil)
	srv := serve(t, s, nil)
	b := put(t, s, random(100, 1))
	var sent []byte
	for i := range 2 {
		c, err := net.Dial("tcp", srv.o.Place.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		nonce, err := readGreeting(c)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			sent = request{id: b.ID, length: 100}.encode(nil, b.Token, nonce, 0)
		}
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		err = readAnswer(c, 100)
		if i == 0 && err != nil || i == 1 && !errors.Is(err, ErrUnknown) {
			t.Errorf("request %d: %v", i, err)
		}
		if i == 0 { // and on the same connection
			if _, err := io.CopyN(io.Discard, c, 100); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			if err := readAnswer(c, 100); !errors.Is(err, ErrUnknown) {
				t.Errorf("the same request again: %v", err)
			}
		}
	}
}

func TestAllow(t *testing.T) {
	s := aSpool(t, nil)
	serve(t, s, nil)
	b := put(t, s, random(100, 1))
	f := aFetcher(t, FetcherOptions{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := fetch(t, f, b); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("error %v, want %v", err, ErrNotAllowed)
	}
	f = aFetcher(t, FetcherOptions{})
	b.Place = "192.0.2.1:80"
	if _, err := fetch(t, f, b); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("error %v, want %v", err, ErrNotAllowed)
	}
	f = aFetcher(t, FetcherOptions{TLSOnly: true, Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	if _, err := fetch(t, f, b); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("without TLS: error %v, want %v", err, ErrNotAllowed)
	}
}

// TestTLS fetches over TLS, and not from a server whose certificate nobody has signed.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lane"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := aSpool(t, nil)
	serve(t, s, func(o *ServerOptions) {
		o.Place.TLS = true
		o.Listener = tls.NewListener(o.Listener, &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		})
	})
	data := random(2*swarms.BulkChunk+5, 9)
	b := put(t, s, data)
	if !b.TLS {
		t.Fatal("the description does not say TLS")
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	f := aFetcher(t, FetcherOptions{TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, TLSOnly: true})
	if got, err := fetch(t, f, b); err != nil || !bytes.Equal(got, data) {
		t.Errorf("over TLS: %v", err)
	}
	var unknown *tls.CertificateVerificationError
	if _, err := fetch(t, aFetcher(t, FetcherOptions{}), b); !errors.As(err, &unknown) {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestBusy: a connection too many is told so, and others go on.
func TestBusy(t *testing.T) {
	s := aSpool(t, nil)
	serve(t, s, func(o *ServerOptions) { o.Connections = 1 })
	b := put(t, s, random(100, 1))
	f, g := aFetcher(t, FetcherOptions{Streams: 1}), aFetcher(t, FetcherOptions{Streams: 1})
	if _, err := fetch(t, f, b); err != nil { // its connection stays
		t.Fatal(err)
	}
	if _, err := fetch(t, g, b); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v, want %v", err, ErrBusy)
	}
	if _, err := fetch(t, f, b); err != nil {
		t.Error(err)
	}
}

// TestRestart ends a server and starts another one for the same folder: what was put is served, and
// idle connections do no harm. Two servers at a time are refused.
func TestRestart(t *testing.T) {
	s := aSpool(t, nil)
	first := serve(t, s, nil)
	data := random(3*swarms.BulkChunk, 1)
	b := put(t, s, data)
	f := aFetcher(t, FetcherOptions{})
	if _, err := fetch(t, f, b); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(ServerOptions{Spool: s, Listener: l, Place: first.o.Place}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second server: error %v, want %v", err, vfs.ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, f, b); err == nil {
		t.Error("it is fetched without a server")
	}
	if l, err = net.Listen("tcp", first.o.Place.Address); err != nil {
		t.Fatal(err)
	}
	second, err := Serve(ServerOptions{Spool: s, Listener: l, Place: first.o.Place})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got, err := fetch(t, f, b); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after the restart: %v", err)
	}
}

// TestSlow: a client that takes nothing and a server that sends nothing are given up, and a context
// that ends is seen at once.
func TestSlow(t *testing.T) {
	s := aSpool(t, nil)
	srv := serve(t, s, func(o *ServerOptions) { o.Slow, o.Idle = 100*time.Millisecond, 100*time.Millisecond })
	b := put(t, s, random(swarms.MaxBulk, 1))
	c, err := net.Dial("tcp", srv.o.Place.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nonce, err := readGreeting(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(request{id: b.ID, length: int64(b.Bytes)}.encode(nil, b.Token, nonce, 0)); err != nil {
		t.Fatal(err)
	}
	wait(t, "the end of a slow client", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.conns) == 0
	})
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the backlog alone
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	b.Place = mute.Addr().String()
	f := aFetcher(t, FetcherOptions{Dial: 100 * time.Millisecond})
	if _, err := fetch(t, f, b); err == nil {
		t.Error("a mute server is no error")
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	f = aFetcher(t, FetcherOptions{Dial: time.Hour, Slow: time.Hour})
	if err := f.Fetch(ctx, b, make([]byte, b.Bytes)); !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
}

// wait waits until met returns true, for 10 s.
func wait(t *testing.T, what string, met func() bool) {
	t.Helper()
	for began := time.Now(); !met(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// faulty is a proxy that harms the bytes of the server now and then.
type faulty struct {
	to   string
	harm func(r *mrand.Rand, b []byte) (out []byte, cut bool)
}

// start serves until the test ends, and returns the address.
func (p faulty) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for seed := uint64(0); ; seed++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			all.Go(func() {
				defer in.Close()
				defer out.Close()
				r := mrand.New(mrand.NewPCG(seed, 5))
				b := make([]byte, 64<<10)
				for {
					n, err := out.Read(b)
					sent, cut := p.harm(r, b[:n])
					if _, werr := in.Write(sent); err != nil || werr != nil || cut {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// TestFaults fetches through a proxy that cuts connections, changes bytes, loses and repeats them: a
// fetch returns the right bytes or an error, and in the end the right bytes.
func TestFaults(t *testing.T) {
	s := aSpool(t, nil)
	srv := serve(t, s, nil)
	data := random(2*swarms.BulkChunk+11, 3)
	b := put(t, s, data)
	for name, harm := range map[string]func(r *mrand.Rand, b []byte) ([]byte, bool){
		"cut": func(r *mrand.Rand, b []byte) ([]byte, bool) { return b[:len(b)/2], r.IntN(40) == 0 },
		"flip": func(r *mrand.Rand, b []byte) ([]byte, bool) {
			if len(b) > 0 && r.IntN(40) == 0 {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			return b, false
		},
		"lose": func(r *mrand.Rand, b []byte) ([]byte, bool) {
			if r.IntN(300) == 0 {
				return b[:len(b)-len(b)/4], false
			}
			return b, false
		},
		"repeat": func(r *mrand.Rand, b []byte) ([]byte, bool) {
			if r.IntN(40) == 0 {
				return append(b, b...), false
			}
			return b, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			through := b
			if name == "cut" { // half of the bytes of a piece are lost only where it is cut
				whole := harm
				harm = func(r *mrand.Rand, b []byte) ([]byte, bool) {
					if part, cut := whole(r, b); cut {
						return part, true
					}
					return b, false
				}
			}
			through.Place = faulty{srv.o.Place.Address, harm}.start(t)
			f := aFetcher(t, FetcherOptions{Slow: 100 * time.Millisecond})
			failed := 0
			for range 20 {
				got, err := fetch(t, f, through)
				if err != nil {
					failed++
					continue
				}
				if !bytes.Equal(got, data) {
					t.Fatal("other bytes than were put")
				}
				if failed > 0 || testing.Short() {
					break
				}
			}
			t.Logf("%d failed", failed)
		})
	}
	if _, err := fetch(t, aFetcher(t, FetcherOptions{}), b); err != nil {
		t.Errorf("the server after all faults: %v", err)
	}
}

// TestDisk: a disk that does not read is an error of the fetch.
func TestDisk(t *testing.T) {
	broken := errors.New("broken")
	var fail atomic.Int64 // the offset of reads that fail
	fail.Store(-1)
	fs := &vfs.Inject{FS: vfs.NewMem(0), Before: func(o vfs.Op) error {
		if o.Kind == vfs.OpRead && o.Off == fail.Load() {
			return broken
		}
		return nil
	}}
	s := aSpool(t, fs)
	serve(t, s, nil)
	data := random(3*swarms.BulkChunk, 1)
	b := put(t, s, data)
	for _, at := range []int64{headSize, headSize + 2*swarms.BulkChunk, 0} {
		fail.Store(at)
		f := aFetcher(t, FetcherOptions{Streams: 1})
		if _, err := fetch(t, f, b); err == nil {
			t.Errorf("a read at %d fails, and the fetch does not", at)
		}
		fail.Store(-1)
		if got, err := fetch(t, f, b); err != nil || !bytes.Equal(got, data) {
			t.Errorf("after the failure at %d: %v", at, err)
		}
	}
}

// TestGarbage: whatever a client sends, the server goes on.
func TestGarbage(t *testing.T) {
	s := aSpool(t, nil)
	srv := serve(t, s, func(o *ServerOptions) { o.Idle = 50 * time.Millisecond })
	b := put(t, s, random(100, 1))
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c, err := net.Dial("tcp", srv.o.Place.Address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = c.Write(random(i*13, uint64(i)))
			_ = c.(*net.TCPConn).CloseWrite()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
				t.Error(fmt.Errorf("the server keeps a connection of garbage: %w", err))
			}
		})
	}
	all.Wait()
	if _, err := fetch(t, aFetcher(t, FetcherOptions{}), b); err != nil {
		t.Error(err)
	}
}
