package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
)

// Errors of Bodies.Read. A body beyond its limit is an *http.MaxBytesError.
var (
	// ErrBusy: the bodies of other requests have the memory.
	ErrBusy = errors.New("too many bodies at a time")
	// ErrSlow: the body did not arrive in time.
	ErrSlow = errors.New("the body comes too slowly")
	// ErrCut: the connection ended before the body did.
	ErrCut = errors.New("the body was not read")
)

// Bodies reads the bodies of requests and bounds their memory together. Its methods may be called
// concurrently.
type Bodies struct {
	memory *semaphore.Weighted
	// Wait bounds the wait for memory; 0: a body without memory is ErrBusy at once.
	Wait time.Duration
	// Pause is the longest gap in a body, and Rate its fewest bytes a second after the first Pause.
	// With Pause 0 the timeout of the server counts alone.
	Pause time.Duration
	Rate  int
}

// NewBodies returns the bodies of a server, of at most size bytes together.
func NewBodies(size int64) *Bodies { return &Bodies{memory: semaphore.NewWeighted(size)} }

// Reserve reserves n more bytes for a request that is read, or fails with ErrBusy. The caller gives
// them back with Release.
func (b *Bodies) Reserve(n int64) error {
	if !b.memory.TryAcquire(n) {
		return ErrBusy
	}
	return nil
}

// Release gives back what Reserve has reserved.
func (b *Bodies) Release(n int64) { b.memory.Release(n) }

func (b *Bodies) acquire(ctx context.Context, n int64) error {
	if b.Wait == 0 {
		return b.Reserve(n)
	}
	ctx, cancel := context.WithTimeout(ctx, b.Wait)
	defer cancel()
	if b.memory.Acquire(ctx, n) != nil {
		return ErrBusy
	}
	return nil
}

// Read reads a body of at most limit bytes. Memory is reserved as the bytes arrive, whatever the
// header says. The caller calls free after the last use of data; it is nil after an error.
//
// It does without http.MaxBytesReader, which closes the connection with the rest of a chunked body
// unread: the client then gets a reset in place of the answer.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, limit int64) (data []byte, free func(), err error) {
	if r.ContentLength > limit {
		return nil, nil, &http.MaxBytesError{Limit: limit}
	}
	held := int64(0)
	defer func() {
		if err != nil {
			b.memory.Release(held)
		}
	}()
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	c := http.NewResponseController(w)
	src, began := io.LimitReader(r.Body, limit+1), time.Now()
	for {
		if len(data) == cap(data) {
			size := min(max(2*held, 64<<10), most+1)
			if err := b.acquire(r.Context(), size-held); err != nil {
				return nil, nil, err
			}
			held = size
			data = append(make([]byte, 0, size), data...)
		}
		late := func() bool { return false }
		if b.Pause > 0 {
			now := time.Now()
			until := began.Add(b.Pause + time.Duration(len(data))*time.Second/time.Duration(b.Rate))
			if until.After(now.Add(b.Pause)) {
				until = now.Add(b.Pause)
			}
			_ = c.SetReadDeadline(until) // the recorder of a test has none
			late = func() bool { return time.Now().After(until) }
		}
		n, err := src.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > limit:
			return nil, nil, &http.MaxBytesError{Limit: limit}
		case errors.Is(err, io.EOF):
			return data, func() { b.memory.Release(held) }, nil
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && late():
			return nil, nil, ErrSlow
		case err != nil:
			return nil, nil, fmt.Errorf("%w: %w", ErrCut, err)
		}
	}
}

// Decode reads a value of JSON. A field that v does not have is an error, because a client of a
// later version relies on it.
func Decode(from io.Reader, v any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// Media returns the media type of the body of a request without its parameters; empty for none.
func Media(r *http.Request) string {
	m, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) //nolint:errcheck // empty then
	return m
}
