package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

// events writes a stream. A client that does not read for Options.Patience, or has left, ends it.
type events struct {
	s      *Server
	w      http.ResponseWriter
	rc     *http.ResponseController
	answer Answer
	kind   kind
	usage  bool
	after  int // events up to this id have arrived before
}

// run writes the events of g, whose beginning has n tokens, to the end of the stream. The ids are
// n-1 for the event with the role, then positions of tokens, then the position behind the last
// token, and the next number for the counts of tokens.
func (e *events) run(r *httpapi.Request, g *generation.Stream, n int) {
	head := e.w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("X-Accel-Buffering", "no") // of nginx
	e.w.WriteHeader(http.StatusOK)
	if e.kind.prefix == chatKind.prefix && e.send(n-1, e.choice("", roleAssistant, nil)) != nil {
		return
	}
	for {
		p, err := e.next(r.Context(), g)
		if err != nil {
			if r.Context().Err() == nil {
				_ = e.fail(e.s.failed(r, err)) // the client is gone
			}
			return
		}
		var why *generation.Finish
		if p.Finish != "" {
			why = &p.Finish
		}
		c := e.choice(p.Text, "", why)
		if c.Delta != nil && p.Text == "" {
			c.Delta.Content = nil
		}
		// The rest of the text is in the last event, so that no cut of the stream is between the two.
		if e.send(p.At, c) != nil {
			return
		}
		if why == nil {
			continue
		}
		if e.usage {
			e.answer.Usage = usage(g, n)
			if e.send(p.At+1, nil) != nil {
				return
			}
		}
		_ = e.write([]byte("data: [DONE]\n\n")) // the client is gone
		return
	}
}

func (e *events) choice(text, role string, why *generation.Finish) *Choice {
	c := e.kind.choice(text, role, true)
	c.FinishReason = why
	return &c
}

// next waits for a piece, and shows the client signs of life meanwhile.
func (e *events) next(ctx context.Context, g *generation.Stream) (generation.Piece, error) {
	for {
		wait, cancel := context.WithTimeoutCause(ctx, e.s.o.Beat, errBeat)
		p, err := g.Next(wait)
		cancel()
		if !errors.Is(err, errBeat) {
			return p, err
		}
		if err := e.write([]byte(": waits for tokens\n\n")); err != nil {
			return p, err
		}
	}
}

var errBeat = errors.New("time for a sign of life")

// send writes an event with a choice, or with none.
func (e *events) send(id int, c *Choice) error {
	if id <= e.after {
		return nil
	}
	e.answer.Choices = []Choice{}
	if c != nil {
		e.answer.Choices = append(e.answer.Choices, *c)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d\ndata: ", id)
	if err := json.NewEncoder(&b).Encode(e.answer); err != nil {
		return err
	}
	b.WriteByte('\n')
	return e.write(b.Bytes())
}

// fail writes an error as an event: the status has been sent.
func (e *events) fail(err error) error {
	data, err := json.Marshal(faultOf(err).body())
	if err != nil {
		return err
	}
	return e.write(fmt.Appendf(nil, "event: error\ndata: %s\n\n", data))
}

// write writes within the patience of the server.
func (e *events) write(data []byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.s.o.Patience)) // the recorder of a test has none
	if _, err := e.w.Write(data); err != nil {
		return err
	}
	if err := e.rc.Flush(); err != nil {
		return err
	}
	_ = e.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, written to or not
	return nil
}
