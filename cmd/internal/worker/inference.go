package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// inference continues a prompt.
type inference struct {
	life
	model    *loaded
	ctx      context.Context //nolint:containedctx // of the inference, which the calls of Next are parts of
	cancel   context.CancelCauseFunc
	max      int
	seed     uint64
	sampling transformer.Sampling

	mu     sync.Mutex // held by Next
	pool   device.Buffer
	frames []uint32
	at     int     // positions that are read
	next   []int32 // tokens to read
	drawn  int
	over   bool // no token follows
	failed error
	text   *tokenizer.Decoder
	unread *string // text of the last token, which the caller has not got
}

func (i *inference) kind() string   { return "inference" }
func (i *inference) parent() object { return i.model }

func (i *inference) close(*Library) error {
	defer i.model.parts.Done()
	i.cancel(ErrCancelled)
	i.end()
	i.model.mu.Lock()
	defer i.model.mu.Unlock()
	// Work of a step that was cancelled may still write keys and values. A step of no runs waits
	// for it.
	err := i.model.machine.Step(context.Background(), i.pool, nil, nil)
	return errors.Join(err, i.pool.Close())
}

// Start begins an inference: up to n tokens that follow a prompt. Texts of special tokens in the
// prompt are these tokens. The token that begins a text is put before it, if the model has one.
// The tokens follow from the model, the prompt, the temperature and the seed.
func (l *Library) Start(
	model uint64, prompt string, n int, temperature float32, seed uint64,
) (handle uint64, err error) {
	m, err := l.model(model)
	if err != nil {
		return 0, err
	}
	defer m.done()
	i := &inference{
		model: m, max: n, seed: seed, sampling: transformer.Sampling{Temperature: temperature},
		text: m.words.NewDecoder(),
	}
	if err := i.sampling.Check(); err != nil {
		return 0, err
	}
	if i.next, err = m.words.Encode(prompt, true); err != nil {
		return 0, err
	}
	if first, is := m.words.Begin(); is && (len(i.next) == 0 || i.next[0] != first) {
		i.next = slices.Insert(i.next, 0, first)
	}
	p := m.info.Parameters
	switch room := p.Context - len(i.next); {
	case len(i.next) == 0:
		return 0, fmt.Errorf("the prompt is empty: %w", device.ErrInvalidArgument)
	case n < 1 || n > room:
		return 0, fmt.Errorf("%d tokens behind a prompt of %d: use 1 to %d: %w", n, len(i.next), max(room, 0),
			device.ErrInvalidArgument)
	}
	count := (len(i.next) + n + pagePositions - 1) / pagePositions
	for f := range count {
		i.frames = append(i.frames, uint32(f))
	}
	i.pool, err = m.session.device.Alloc(int64(count)*transformer.PageBytes(*p, pagePositions), "keys and values")
	if err != nil {
		return 0, err
	}
	m.parts.Add(1)
	i.ctx, i.cancel = context.WithCancelCause(context.Background())
	if handle, err = l.handles.put(i, 0); err != nil {
		return 0, errors.Join(err, i.close(l))
	}
	return handle, nil
}

// Next returns the text of the next token, and its number, which counts from 0. more is false
// behind the last one. A text that is the beginning of a character is empty, and the character
// comes with a later token. If the text has more than room bytes, the error is a
// device.ErrInvalidArgument, and the next call returns the same token. A byte of 0 in a text is
// replaced by U+FFFD.
func (l *Library) Next(handle uint64, room int) (text string, number int, more bool, err error) {
	i, _, err := find[*inference](&l.handles, handle)
	if err == nil {
		err = i.begin(handle)
	}
	if err != nil {
		return "", 0, false, err
	}
	defer i.done()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unread == nil {
		if err := i.step(); err != nil || i.over && i.unread == nil {
			return "", 0, false, err
		}
	}
	if text = *i.unread; len(text) > room {
		return "", 0, false, fmt.Errorf("token %d has %d bytes of text, and there is room for %d: %w", i.drawn-1,
			len(text), max(room, 0), device.ErrInvalidArgument)
	}
	i.unread = nil
	return text, i.drawn - 1, true, nil
}

// step draws a token, unless the inference is over.
func (i *inference) step() error {
	if err := context.Cause(i.ctx); err != nil {
		return err
	}
	if i.over {
		return i.failed
	}
	m := i.model
	if err := m.weights.Intact(); err != nil {
		return err
	}
	runs := []transformer.Run{{
		Frames: i.frames, From: i.at, Tokens: i.next, Draw: true, Sampling: i.sampling, Seed: i.seed,
	}}
	var out [1]transformer.Token
	m.mu.Lock()
	err := m.machine.Step(i.ctx, i.pool, runs, out[:])
	m.mu.Unlock()
	if err != nil {
		// Its positions are undefined: no call can continue it.
		i.over, i.failed = true, errors.Join(context.Cause(i.ctx), err)
		return i.failed
	}
	i.at += len(i.next)
	token := out[0].Token
	if slices.Contains(m.words.Ends(), token) || slices.Contains(m.info.Parameters.End, int(token)) {
		i.over = true
		if rest := i.text.Flush(); rest != "" {
			i.take(rest)
		}
		return nil
	}
	text := i.text.Add(token)
	if i.drawn+1 == i.max {
		i.over = true
		text += i.text.Flush()
	}
	i.next = []int32{token}
	i.take(text)
	return nil
}

// take counts a token with a text.
func (i *inference) take(text string) {
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	i.unread = &text
	i.drawn++
}

// Cancel ends an inference: a call of Next in progress and later ones return ErrCancelled.
func (l *Library) Cancel(handle uint64) error {
	i, _, err := find[*inference](&l.handles, handle)
	if err == nil {
		err = i.begin(handle)
	}
	if err != nil {
		return err
	}
	defer i.done()
	i.cancel(ErrCancelled)
	return nil
}

// FreeInference frees an inference, which it cancels. A handle of 0 is no error.
func (l *Library) FreeInference(handle uint64) error { return free[*inference](l, handle) }
