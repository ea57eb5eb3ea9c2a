package objects

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

const (
	// chunkBytes is the size of a chunk, as the client has it.
	chunkBytes = 128 << 10
	// chunksAhead is how many chunks the server may have to store before the next one is sent. Thirty
	// uploads at a time stay below the bound of the server (natsconn.ErrCodeTooFast).
	chunksAhead = 32
	// chunkWait is how long the answer to a chunk is waited for.
	chunkWait = 5 * time.Second
)

// upload stores one object, in one or more tries. The client's own Put removes the chunks of a try
// whose description got no answer. The description may be stored all the same, also after the
// description of the next try, and then has no content. So an upload removes none of its chunks
// before the end, and stores its description only if the description that existed when the try
// began is still the last.
type upload struct {
	st    *Store
	meta  jetstream.ObjectMeta
	tried []string // ids of the contents, one for each try
}

func (u *upload) put(ctx context.Context, r io.Reader) (int64, error) {
	c := u.st.conn
	subject := metaSubject(u.meta.Name)
	was, err := c.Last(ctx, objectStream, subject)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return 0, err
	}
	info := jetstream.ObjectInfo{ObjectMeta: u.meta, Bucket: objectStream[len("OBJ_"):], NUID: natsconn.NewID()}
	u.tried = append(u.tried, info.NUID)
	if err := u.chunks(ctx, r, &info); err != nil {
		return 0, err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return 0, err
	}
	for {
		behind, before := uint64(0), jetstream.ObjectInfo{}
		if was != nil {
			behind = was.Seq
			if err := json.Unmarshal(was.Data, &before); err != nil {
				before.NUID = "" // its chunks stay for the sweep
			}
		}
		if slices.Contains(u.tried, before.NUID) { // an earlier try, whose answer was lost, is the object
			info = before
			break
		}
		m := nats.NewMsg(subject)
		m.Data = data
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(behind, 10))
		err := c.PublishMsg(ctx, c.RetryIdempotent, "store the description of object "+u.meta.Name, m)
		if err == nil {
			if before.NUID != "" {
				_, _ = c.Purge(ctx, objectStream, objectChunks+before.NUID) // else the sweep removes them
			}
			break
		}
		if !natsconn.IsWrongRevision(err) {
			return 0, err
		}
		if was, err = c.Last(ctx, objectStream, subject); err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return 0, err
		}
	}
	for _, id := range u.tried {
		if id != info.NUID {
			_, _ = c.Purge(ctx, objectStream, objectChunks+id)
		}
	}
	return int64(info.Size), nil
}

// chunks stores the content, and returns when the server has all of it.
func (u *upload) chunks(ctx context.Context, r io.Reader, info *jetstream.ObjectInfo) error {
	digest := sha256.New()
	var sent []jetstream.PubAckFuture
	wait := func(left int) error {
		for len(sent) > left {
			limit := time.NewTimer(chunkWait)
			select {
			case <-sent[0].Ok():
			case err := <-sent[0].Err():
				limit.Stop()
				return err
			case <-limit.C:
				return nats.ErrTimeout
			case <-ctx.Done():
				limit.Stop()
				return context.Cause(ctx)
			}
			limit.Stop()
			sent = sent[1:]
		}
		return nil
	}
	for {
		chunk := make([]byte, chunkBytes) // the client keeps it until it is answered
		n, err := io.ReadFull(r, chunk)
		if n > 0 {
			digest.Write(chunk[:n])
			info.Size += uint64(n)
			info.Chunks++
			if err := wait(chunksAhead - 1); err != nil {
				return err
			}
			// A chunk that the client sends again by itself may be stored behind the next one.
			f, err := u.st.conn.JS.PublishMsgAsync(&nats.Msg{Subject: objectChunks + info.NUID, Data: chunk[:n]},
				jetstream.WithRetryAttempts(0))
			if err != nil {
				return err
			}
			sent = append(sent, f)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read it: %w", err)
		}
	}
	info.Digest = "SHA-256=" + base64.URLEncoding.EncodeToString(digest.Sum(nil))
	return wait(0)
}
