package natsconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Message is a stored message of a stream.
type Message struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"`
	RawHdr  []byte      `json:"hdrs"`
	Data    []byte      `json:"data"`
	Time    time.Time   `json:"time"`
	Header  nats.Header `json:"-"`
}

// LastOnce returns the last message on a subject, which may have wildcards, from the leader of the
// stream. Without one it fails with jobs.ErrNotFound. It tries once. The client's own call may be
// answered by a replica that lags behind.
func (c *Conn) LastOnce(ctx context.Context, stream, subject string) (*Message, error) {
	return c.GetOnce(ctx, stream, map[string]any{"last_by_subj": subject})
}

// NextOnce returns the first message with the sequence number seq or a later one on a subject,
// which may have wildcards. It is otherwise like LastOnce.
func (c *Conn) NextOnce(ctx context.Context, stream, subject string, seq uint64) (*Message, error) {
	return c.GetOnce(ctx, stream, map[string]any{"next_by_subj": subject, "seq": seq})
}

// GetOnce asks the leader of a stream for one message, by the fields of the server's request. It is
// otherwise like LastOnce.
func (c *Conn) GetOnce(ctx context.Context, stream string, req map[string]any) (*Message, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	answered := c.Timed(OpGet)
	m, err := c.NC.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, data)
	answered(err)
	if err != nil {
		return nil, err
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *Message            `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return nil, fmt.Errorf("answer about stream %s: %w", stream, err)
	}
	switch {
	case resp.Error != nil && resp.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jobs.ErrNotFound
	case resp.Error != nil:
		return nil, resp.Error
	case resp.Message == nil:
		return nil, fmt.Errorf("answer about stream %s without a message", stream)
	}
	if len(resp.Message.RawHdr) > 0 {
		if resp.Message.Header, err = nats.DecodeHeadersMsg(resp.Message.RawHdr); err != nil {
			return nil, fmt.Errorf("headers of message %d of stream %s: %w", resp.Message.Seq, stream, err)
		}
	}
	return resp.Message, nil
}

// What the server says when a limit refuses a message; the limits share a code and differ in the
// text only.
const (
	errCodeStoreFailed = 10077
	perSubject         = "maximum messages per subject exceeded"
	tooMany            = "maximum messages exceeded"
	tooMuch            = "maximum bytes exceeded"
)

// Rejected tells the limits of a stream apart: exists is true when the subject has its one message,
// full when the stream takes no more.
func Rejected(err error) (exists, full bool) {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != errCodeStoreFailed {
		return false, false
	}
	return api.Description == perSubject, api.Description == tooMany || api.Description == tooMuch
}

// PublishMsg stores one message and returns when the server has acknowledged it. The caller's tries
// are told apart by a message id, so one whose acknowledgement was lost is not stored twice within
// the server's memory of two minutes.
func (c *Conn) PublishMsg(ctx context.Context, t RetryFunc, what string, m *nats.Msg) error {
	SetMessageID(m)
	return t(ctx, what, len(m.Data), func(ctx context.Context) error {
		answered := c.Timed(OpPublish)
		_, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		answered(err)
		return err
	})
}

// SetMessageID gives a message the id that tells its tries apart.
func SetMessageID(m *nats.Msg) {
	if m.Header.Get(jetstream.MsgIDHeader) == "" {
		SetHeader(m, jetstream.MsgIDHeader, NewID())
	}
}

// PublishBatch stores up to jobs.MaxBatch messages of one stream, all or none. A batch whose
// acknowledgement was lost is tried again; what the server says of that try is returned, so after
// unsure it may refuse what the first try stored.
func (c *Conn) PublishBatch(ctx context.Context, t RetryFunc, what string, msgs []*nats.Msg) (unsure bool, err error) {
	n, size := 0, 0
	for _, m := range msgs {
		size += len(m.Data)
	}
	err = t(ctx, what, size, func(ctx context.Context) error {
		n++
		return c.PublishBatchOnce(ctx, msgs)
	})
	return n > 1, err
}

// ErrCodeManyBatches is the error code of a server that has too many atomic batches in progress.
const ErrCodeManyBatches = 10210

// Headers of an atomic batch (nats-server 2.12 and later).
const (
	headerBatch       = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// PublishBatchOnce publishes messages as one. The server answers the first, so that a refusal is
// noticed before the rest is sent, and the last, which commits.
func (c *Conn) PublishBatchOnce(ctx context.Context, msgs []*nats.Msg) (err error) {
	answered := c.Timed(OpPublish)
	defer func() { answered(err) }()
	id := NewID()
	for i, m := range msgs {
		h := nats.Header{}
		for k, v := range m.Header {
			h[k] = v
		}
		h.Set(headerBatch, id)
		h.Set(headerBatchSeq, strconv.Itoa(i+1))
		out := &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
		last := i == len(msgs)-1
		if last {
			h.Set(headerBatchCommit, "1")
		}
		if i > 0 && !last {
			if err := c.NC.PublishMsg(out); err != nil {
				return err
			}
			continue
		}
		resp, err := c.NC.RequestMsgWithContext(ctx, out)
		if err != nil {
			return err
		}
		if len(resp.Data) == 0 && !last {
			continue
		}
		var ack struct {
			Error *jetstream.APIError `json:"error"`
			Count int                 `json:"count"`
		}
		if err := json.Unmarshal(resp.Data, &ack); err != nil {
			return fmt.Errorf("answer to a batch: %w", err)
		}
		if ack.Error != nil {
			return ack.Error
		}
		if last && ack.Count != len(msgs) {
			return fmt.Errorf("the server took %d of a batch of %d", ack.Count, len(msgs))
		}
	}
	return nil
}

// Last is LastOnce with retries.
func (c *Conn) Last(ctx context.Context, stream, subject string) (m *Message, err error) {
	err = c.RetryIdempotent(ctx, "read "+subject, 0, func(ctx context.Context) error {
		m, err = c.LastOnce(ctx, stream, subject)
		return err
	})
	return m, err
}

// Next is NextOnce with retries.
func (c *Conn) Next(ctx context.Context, stream, subject string, seq uint64) (m *Message, err error) {
	err = c.Retry(ctx, "read "+subject, func(ctx context.Context) error {
		m, err = c.NextOnce(ctx, stream, subject, seq)
		return err
	})
	return m, err
}

// Each reads the messages on a subject, which may have wildcards, from the sequence number seq on.
// It reads one at a time with retries, and ends behind the last message or with an error. what
// names the caller's work in errors.
func (c *Conn) Each(ctx context.Context, what, stream, subject string, seq uint64) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		for {
			var m *Message
			err := c.Retry(ctx, what, func(ctx context.Context) (err error) {
				m, err = c.NextOnce(ctx, stream, subject, seq)
				return err
			})
			if errors.Is(err, jobs.ErrNotFound) || !yield(m, err) || err != nil {
				return
			}
			seq = m.Seq + 1
		}
	}
}

// Bounds returns the sequence numbers of the first and the last message of a stream.
func (c *Conn) Bounds(ctx context.Context, what, stream string) (first, last uint64, err error) {
	err = c.Retry(ctx, what, func(ctx context.Context) error {
		s, err := c.JS.Stream(ctx, stream)
		if err == nil {
			first, last = s.CachedInfo().State.FirstSeq, s.CachedInfo().State.LastSeq
		}
		return err
	})
	return first, last, err
}

// Remove removes one message of a stream. It succeeds if the message does not exist.
func (c *Conn) Remove(ctx context.Context, stream string, seq uint64) error {
	return c.Retry(ctx, fmt.Sprintf("remove message %d of %s", seq, stream), func(ctx context.Context) error {
		s, err := c.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		answered := c.Timed(OpAPI)
		err = s.DeleteMsg(ctx, seq)
		answered(err)
		if err != nil && !IsTransient(err) {
			// The server's refusal has no code for a missing message, so ask for the message.
			if _, gerr := c.GetOnce(ctx, stream, map[string]any{"seq": seq}); errors.Is(gerr, jobs.ErrNotFound) {
				return nil
			}
		}
		return err
	})
}

// Purge removes all messages of a subject, which may have wildcards, and returns their number.
func (c *Conn) Purge(ctx context.Context, stream, subject string) (n uint64, err error) {
	err = c.Retry(ctx, "purge "+subject, func(ctx context.Context) error {
		n, err = c.PurgeOnce(ctx, stream, subject, 0)
		return err
	})
	return n, err
}

// PurgeOnce is Purge for the messages before a sequence number, 0 for all. It tries once.
func (c *Conn) PurgeOnce(ctx context.Context, stream, subject string, before uint64) (n uint64, err error) {
	req, err := json.Marshal(map[string]any{"filter": subject, "seq": before})
	if err != nil {
		return 0, err
	}
	answered := c.Timed(OpAPI)
	m, err := c.NC.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, req)
	answered(err)
	if err != nil {
		return 0, err
	}
	var resp struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return 0, fmt.Errorf("answer of stream %s: %w", stream, err)
	}
	if resp.Error != nil {
		return 0, resp.Error
	}
	return resp.Purged, nil
}

// DeleteStream deletes the stream of a log. It succeeds if the stream does not exist.
func (c *Conn) DeleteStream(ctx context.Context, name string) error {
	return c.Retry(ctx, "delete log "+name, func(ctx context.Context) error {
		answered := c.Timed(OpAPI)
		err := c.JS.DeleteStream(ctx, name)
		answered(err)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// SetHeader sets a header of a message without changing the case of its key.
func SetHeader(m *nats.Msg, key, value string) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[key] = []string{value}
}

// PublishMany stores messages of one stream independently of one another, and returns for each the
// error that PublishMsg would return. They are jobs.MaxBatch at most. Whoever cannot have a message
// refused because an earlier try of it was stored names them first; the server remembers every name
// for two minutes.
func (c *Conn) PublishMany(ctx context.Context, t RetryFunc, mode *wire.PublishMode, what string,
	msgs []*nats.Msg,
) []error {
	together := mode.Atomic(len(msgs))
	began := time.Now()
	if together {
		_, err := c.PublishBatch(ctx, t, what, msgs)
		if err == nil {
			mode.Observe(true, len(msgs), time.Since(began))
			return make([]error, len(msgs))
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) {
			errs := make([]error, len(msgs))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		// One of them is refused, or an earlier try has stored them all and its answer was lost: by
		// its id each tells.
	}
	errs := c.publishEach(ctx, t, what, msgs)
	if !together && !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		mode.Observe(false, len(msgs), time.Since(began))
	}
	return errs
}

// publishEach stores messages concurrently. They are stored in their order, except messages that
// are tried again.
func (c *Conn) publishEach(ctx context.Context, t RetryFunc, what string, msgs []*nats.Msg) []error {
	errs := make([]error, len(msgs))
	if len(msgs) == 1 {
		errs[0] = c.PublishMsg(ctx, t, what, msgs[0])
		return errs
	}
	size := 0
	for _, m := range msgs {
		size += len(m.Data)
	}
	attempt, end := c.refused.attempt(ctx)
	try, cancel := context.WithTimeout(attempt, tryLimit(0, size))
	answered := c.Timed(OpPublish)
	answers := make([]jetstream.PubAckFuture, len(msgs))
	for i, m := range msgs {
		answers[i], errs[i] = c.JS.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	}
	for i, f := range answers {
		if errs[i] != nil {
			continue
		}
		select {
		case <-f.Ok():
		case errs[i] = <-f.Err():
		case <-try.Done():
			errs[i] = try.Err()
		}
	}
	cancel()
	answered(firstFailure(errs))
	end(nil)
	var again sync.WaitGroup
	for i, err := range errs {
		if IsTransient(err) || errors.Is(err, context.Canceled) || errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			again.Go(func() { errs[i] = c.PublishMsg(ctx, t, what, msgs[i]) }) // under its id: it is stored once
		}
	}
	again.Wait()
	return errs
}

// firstFailure returns the first of the errors for which the server did not do its work; nil
// without one.
func firstFailure(errs []error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return failure(err) != "" || errors.Is(err, context.Canceled) })
	if i < 0 {
		return nil
	}
	return errs[i]
}
