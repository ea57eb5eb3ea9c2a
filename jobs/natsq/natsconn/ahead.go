package natsconn

import (
	"context"
	"slices"
	"sync"
)

const aheadMost = 32

// Ahead reads the messages of a stream in turn. It is Next that asks for several at a time where
// their numbers follow one another: a question for each took a list of 100,000 jobs 40 s. It is for
// one goroutine.
type Ahead struct {
	ask     func(ctx context.Context, seq uint64) (*Message, error)
	window  int
	answers []aheadAnswer // in the order of the numbers
}

// aheadAnswer is the first message from a sequence number on.
type aheadAnswer struct {
	from uint64
	m    *Message
	err  error
}

// NewAhead returns a reader that gets messages by ask, which is Next of one stream and subject.
// Several goroutines call ask at a time.
func NewAhead(ask func(ctx context.Context, seq uint64) (*Message, error)) *Ahead {
	return &Ahead{ask: ask}
}

// Next returns the first message with the sequence number seq or a later one. It may have been read
// with an earlier call.
func (a *Ahead) Next(ctx context.Context, seq uint64) (*Message, error) {
	for i, got := range a.answers {
		if got.err == nil && got.from <= seq && seq <= got.m.Seq {
			a.answers = a.answers[i:]
			return got.m, nil
		}
	}
	// The window doubles as long as every number has a message.
	dense := !slices.ContainsFunc(a.answers, func(got aheadAnswer) bool {
		return got.err != nil || got.m.Seq != got.from
	})
	if a.window = min(2*a.window, aheadMost); !dense || a.window == 0 {
		a.window = 1
	}
	a.answers = make([]aheadAnswer, a.window)
	var asked sync.WaitGroup
	for i := range a.answers {
		asked.Go(func() {
			from := seq + uint64(i)
			m, err := a.ask(ctx, from)
			a.answers[i] = aheadAnswer{from, m, err}
		})
	}
	asked.Wait()
	return a.answers[0].m, a.answers[0].err
}
