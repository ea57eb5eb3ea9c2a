// Package httpapi is the HTTP surface that the servers of the product share: the server with its
// timeouts and its drain, the table of routes with their parameters and their description, admission,
// the memory of bodies, and answers in JSON.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"time"
)

const headerTimeout = 5 * time.Second

// Config configures a Server. Handler is required. A timeout of 0 means none, and MaxHeader 0 the
// default of net/http.
type Config struct {
	Handler http.Handler
	// Serve is TLS of a configuration, or nil to serve the connections as the listener has them. It is
	// a function so that programs without HTTPS do not contain the server of crypto/tls.
	Serve func(s *http.Server, l net.Listener) error
	// ErrorLog receives what net/http says of connections; nil for the default of package log.
	ErrorLog  *log.Logger
	Read      time.Duration // bounds the arrival of a request
	Write     time.Duration // bounds a request from its header to the end of its answer
	Idle      time.Duration // bounds the wait for the next request of a connection
	MaxHeader int           // bytes
}

// TLS serves HTTPS with HTTP/2. A nil configuration serves HTTP.
func TLS(c *tls.Config) func(s *http.Server, l net.Listener) error {
	if c == nil {
		return nil
	}
	return func(s *http.Server, l net.Listener) error {
		s.TLSConfig = c
		return s.ServeTLS(l, "", "")
	}
}

// Server serves the connections of one listener until Close.
type Server struct {
	http *http.Server
	done chan struct{}
	err  error // valid when done is closed
}

// Start serves the connections of l, which it closes at the end.
func Start(l net.Listener, c Config) *Server {
	s := &Server{
		http: &http.Server{
			Handler: c.Handler, ErrorLog: c.ErrorLog, ReadHeaderTimeout: headerTimeout, ReadTimeout: c.Read,
			WriteTimeout: c.Write, IdleTimeout: c.Idle, MaxHeaderBytes: c.MaxHeader,
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		serve := c.Serve
		if serve == nil {
			serve = (*http.Server).Serve
		}
		if err := serve(s.http, l); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	}()
	return s
}

// Done returns a channel that is closed when the server accepts no more connections.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err blocks until Done is closed, and returns why the listener failed; nil after Close.
func (s *Server) Err() error {
	<-s.done
	return s.err
}

// Close refuses new requests and lets the requests in progress finish until ctx ends. Then it
// closes their connections. A second call does nothing.
func (s *Server) Close(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// CloseWithin is Close with a bound on the drain.
func (s *Server) CloseWithin(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	s.Close(ctx)
}
