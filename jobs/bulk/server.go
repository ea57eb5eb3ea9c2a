package bulk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// ServerOptions configure Serve. The zero value of a field has the default that its comment states.
type ServerOptions struct {
	// Spool has the payloads. Required.
	Spool *Spool
	// Listener accepts the connections, with TLS where Place says so. Serve closes it. Required.
	Listener net.Listener
	// Place is what the descriptions of payloads say from now on. Required.
	Place Place
	// Connections bounds the connections at a time; 0: 256.
	Connections int
	// Idle bounds the time until the next request of a connection; 0: 2 min. Slow bounds the time
	// in which a client takes 1 MiB; 0: 30 s.
	Idle, Slow time.Duration
	// Metrics count what is sent; nil for none.
	Metrics *Metrics
	Logger  *slog.Logger // nil: slog.Default
}

// Server sends the payloads of a spool. Its methods may be called from several goroutines.
type Server struct {
	o     ServerOptions
	lock  io.Closer
	ended sync.WaitGroup
	parts sync.Pool // of *[]byte with BulkChunk bytes

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// Serve stores the place of the spool and serves until Close. It fails if another process serves
// the spool. The listener is closed in any case.
func Serve(o ServerOptions) (*Server, error) {
	if o.Connections == 0 {
		o.Connections = 256
	}
	if o.Idle == 0 {
		o.Idle = 2 * time.Minute
	}
	if o.Slow == 0 {
		o.Slow = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	lock, err := o.Spool.fs.Lock(filepath.Join(o.Spool.dir, lockName))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve spool %s: another process serves it: %w", o.Spool.dir, err),
			o.Listener.Close())
	}
	if err := o.Spool.setPlace(o.Place); err != nil {
		return nil, errors.Join(err, o.Listener.Close(), lock.Close())
	}
	s := &Server{o: o, lock: lock, conns: map[net.Conn]bool{}}
	s.parts.New = func() any { b := make([]byte, swarms.BulkChunk); return &b }
	s.ended.Go(s.accept)
	return s, nil
}

// Close ends all connections and waits for their goroutines. A second call does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	err := s.o.Listener.Close()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.ended.Wait()
	return errors.Join(err, s.lock.Close())
}

// acceptPause is the pause after a failed accept, as when the process has no more descriptors.
const acceptPause = 50 * time.Millisecond

// accept starts a goroutine for each connection.
func (s *Server) accept() {
	for {
		c, err := s.o.Listener.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed || errors.Is(err, net.ErrClosed) {
				return
			}
			s.o.Logger.Warn("the bulk lane accepts no connection", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		switch took, busy := s.take(c); {
		case busy:
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(append(encodeAnswer(statusBusy, 0), make([]byte, greetSize-answerSize)...))
			_ = c.Close()
			s.o.Metrics.served(statusBusy, 0)
		case !took:
			_ = c.Close()
		default:
			s.ended.Go(func() {
				defer s.leave(c)
				if err := s.serve(c); err != nil {
					s.o.Logger.Debug("a connection of the bulk lane ended", "from", c.RemoteAddr().String(), "error",
						err)
				}
			})
		}
	}
}

// take counts a connection, unless there are too many or the server is closed.
func (s *Server) take(c net.Conn) (took, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.o.Connections {
		return false, !s.closed
	}
	s.conns[c] = true
	s.o.Metrics.connected(1)
	return true, false
}

func (s *Server) leave(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.o.Metrics.connected(-1)
}

// serve answers the requests of a connection until it ends.
func (s *Server) serve(c net.Conn) error {
	greeting := make([]byte, greetSize)
	copy(greeting, greetMagic)
	nonce := greeting[len(greetMagic):]
	_, _ = rand.Read(nonce) // which never fails
	if err := c.SetDeadline(time.Now().Add(s.o.Slow)); err != nil {
		return err
	}
	if _, err := c.Write(greeting); err != nil {
		return err
	}
	b := make([]byte, requestSize)
	for n := uint64(0); ; n++ {
		if err := c.SetDeadline(time.Now().Add(s.o.Idle)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		r, err := decodeRequest(b)
		if err != nil {
			return err
		}
		if err := s.answer(c, r, b, nonce, n); err != nil {
			return err
		}
	}
}

// answer sends a part of a payload, or the reason why not. After an error the connection is of no
// use.
func (s *Server) answer(c net.Conn, r request, b, nonce []byte, n uint64) error {
	f, h, err := s.o.Spool.open(r.id)
	if err == nil {
		defer func() { _ = f.Close() }() // it was read
	}
	st := statusOK
	switch {
	case errors.Is(err, ErrUnknown), err == nil && !r.signed(b, h.token, nonce, n):
		st = statusUnknown
	case err != nil:
		st = statusDisk
		s.o.Logger.Error("a payload cannot be read", "error", err)
	case r.offset+r.length > int64(h.bytes):
		st = statusUnknown
	}
	if st != statusOK {
		s.o.Metrics.served(st, 0)
		return s.write(c, encodeAnswer(st, 0))
	}
	return s.send(c, f, r)
}

// send sends a part of a file. A disk that fails ends the connection, because the client waits for
// bytes then.
func (s *Server) send(c net.Conn, f vfs.File, r request) error {
	if err := s.write(c, encodeAnswer(statusOK, r.length)); err != nil {
		return err
	}
	if done, err := s.sendFile(c, f, r); done || err != nil {
		return err
	}
	part := s.parts.Get().(*[]byte)
	defer s.parts.Put(part)
	for at, end := r.offset, r.offset+r.length; at < end; {
		p := (*part)[:min(int64(len(*part)), end-at)]
		if _, err := f.ReadAt(p, headSize+at); err != nil {
			s.o.Metrics.served(statusDisk, 0)
			s.o.Logger.Error("a payload cannot be read", "payload", r.id, "error", err)
			return fmt.Errorf("%w: %w", ErrDisk, err)
		}
		if err := s.write(c, p); err != nil {
			return err
		}
		at += int64(len(p))
	}
	s.o.Metrics.served(statusOK, r.length)
	return nil
}

// systemFile is a file of the operating system, from which the system sends by itself.
type systemFile interface {
	io.ReadSeeker
	syscall.Conn
}

// sendFile is the rest of send without a copy to this process, for a file of the operating system and
// a connection without TLS; done is false for others. It halves the processor time of the server
// (BenchmarkLoopback).
func (s *Server) sendFile(c net.Conn, f vfs.File, r request) (done bool, err error) {
	to, tcp := c.(*net.TCPConn)
	from, system := f.(systemFile)
	if !tcp || !system {
		return false, nil
	}
	if _, err := from.Seek(headSize+r.offset, io.SeekStart); err != nil {
		return false, fmt.Errorf("%w: %w", ErrDisk, err)
	}
	for left := r.length; left > 0; {
		if err := c.SetDeadline(time.Now().Add(s.o.Slow)); err != nil {
			return false, err
		}
		want := min(left, swarms.BulkChunk)
		n, err := to.ReadFrom(&io.LimitedReader{R: from, N: want})
		if err == nil && n < want {
			err = io.ErrUnexpectedEOF
		}
		if errors.Is(err, syscall.EIO) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.o.Metrics.served(statusDisk, 0)
			s.o.Logger.Error("a payload cannot be read", "payload", r.id, "error", err)
			return false, fmt.Errorf("%w: %w", ErrDisk, err)
		}
		if err != nil {
			return false, err
		}
		left -= n
	}
	s.o.Metrics.served(statusOK, r.length)
	return true, nil
}

// write writes up to 1 MiB within the time of ServerOptions.Slow.
func (s *Server) write(c net.Conn, b []byte) error {
	if err := c.SetDeadline(time.Now().Add(s.o.Slow)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// Sweep removes the payloads that no replay needs, every interval until ctx ends.
func (s *Server) Sweep(ctx context.Context, logs Logs, every time.Duration) {
	w := newSweeper(s.o.Spool, logs)
	t := time.NewTicker(every)
	defer t.Stop()
	for failing := false; ; {
		found, err := w.sweep(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		s.o.Metrics.swept(found)
		if err != nil && !failing {
			s.o.Logger.Warn("payloads of the bulk lane are kept longer than needed", "error", err)
		}
		failing = err != nil
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
