package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// stored is a message as it stands in a stream.
type stored struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"`
	RawHdr  []byte      `json:"hdrs"`
	Data    []byte      `json:"data"`
	Time    time.Time   `json:"time"`
	Header  nats.Header `json:"-"`
}

// last returns the last message on a subject, which may have wildcards, as the leader of the stream has it; jobs.ErrNotFound
// when there is none. The client's own call may be answered by a replica that lags, which is no base for a decision.
func (c *Conn) last(ctx context.Context, stream, subject string) (*stored, error) {
	return c.getMsg(ctx, stream, map[string]any{"last_by_subj": subject})
}

// next returns the first message at or behind a sequence number on a subject, which may have wildcards.
func (c *Conn) next(ctx context.Context, stream, subject string, seq uint64) (*stored, error) {
	return c.getMsg(ctx, stream, map[string]any{"next_by_subj": subject, "seq": seq})
}

func (c *Conn) getMsg(ctx context.Context, stream string, req map[string]any) (*stored, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	m, err := c.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, data)
	if err != nil {
		return nil, err
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *stored             `json:"message"`
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

// What the server says when a limit refuses a message; the limits share a code and differ in the text only.
const (
	errCodeStoreFailed = 10077
	perSubject         = "maximum messages per subject exceeded"
	tooMany            = "maximum messages exceeded"
	tooMuch            = "maximum bytes exceeded"
)

// refused tells the limits of a stream apart: exists is true when the subject has its one message, full when the stream
// takes no more.
func refused(err error) (exists, full bool) {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != errCodeStoreFailed {
		return false, false
	}
	return api.Description == perSubject, api.Description == tooMany || api.Description == tooMuch
}

// publish stores one message and returns when the server has acknowledged it. The caller's tries are told apart by a message id,
// so one whose acknowledgement was lost is not stored twice within the server's memory of two minutes.
func (c *Conn) publish(ctx context.Context, t tries, what string, m *nats.Msg) error {
	nameTry(m)
	return t(ctx, what, len(m.Data), func(ctx context.Context) error {
		_, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		return err
	})
}

// nameTry gives a message the id that tells its tries apart.
func nameTry(m *nats.Msg) {
	if m.Header.Get(jetstream.MsgIDHeader) == "" {
		setHeader(m, jetstream.MsgIDHeader, NewID())
	}
}

// publishAll stores up to jobs.MaxBatch messages of one stream, all or none. A batch whose acknowledgement was lost is
// tried again; what the server says of that try is returned, so after unsure it may refuse what the first try stored.
func (c *Conn) publishAll(ctx context.Context, t tries, what string, msgs []*nats.Msg) (unsure bool, err error) {
	n, size := 0, 0
	for _, m := range msgs {
		size += len(m.Data)
	}
	err = t(ctx, what, size, func(ctx context.Context) error {
		n++
		return c.batch(ctx, msgs)
	})
	return n > 1, err
}

// Headers of an atomic batch (nats-server 2.12 and later).
const (
	headerBatch       = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// batch publishes messages as one. The server answers the first, so that a refusal is noticed before the rest is sent, and the
// last, which commits.
func (c *Conn) batch(ctx context.Context, msgs []*nats.Msg) error {
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
			if err := c.nc.PublishMsg(out); err != nil {
				return err
			}
			continue
		}
		resp, err := c.nc.RequestMsgWithContext(ctx, out)
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
