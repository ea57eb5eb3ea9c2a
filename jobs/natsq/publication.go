package natsq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// outSubject is the prefix of the subjects below exo. on which jobs may publish. The role of agents
// allows them.
const outSubject = "exo.out."

// ownSubject reports whether a subject belongs to the queue or the server, or is an inbox. A job
// must not publish on such a subject: it could forge messages of the queue, or answers to requests.
func ownSubject(subject string) bool {
	for _, p := range []string{"exo.", "$", "_"} {
		if strings.HasPrefix(subject, p) {
			return !strings.HasPrefix(subject, outSubject)
		}
	}
	return subject == "exo"
}

// Publish stores a message in a stream of a user, and returns when it is stored. Of several calls
// with the same id only one stores the message, for as long as the stream remembers ids. The stream
// must exist and have the subject, otherwise the error has jobs.CodeInvalid. After
// jobs.ErrUnavailable the call may be repeated.
func (u *Streams) Publish(ctx context.Context, p jobs.Publication) error {
	what := "publish to " + p.Subject + " of stream " + p.Stream
	if ownStream(p.Stream) || ownSubject(p.Subject) || strings.ContainsAny(p.Subject, "*> \t\r\n") {
		return jobs.Errorf(jobs.CodeInvalid, "%s: it belongs to the queue, or is a pattern: name a subject of a "+
			"stream of your own, below %s where agents have a role", what, outSubject)
	}
	if most := u.conn.NC.MaxPayload(); int64(len(p.Data)) > most {
		return jobs.Errorf(jobs.CodeInvalid, "%s: a message of %d bytes, the server takes %d", what, len(p.Data), most)
	}
	m := &nats.Msg{Subject: p.Subject, Data: p.Data}
	natsconn.SetHeader(m, jetstream.MsgIDHeader, p.ID)
	natsconn.SetHeader(m, jetstream.ExpectedStreamHeader, p.Stream)
	if p.Type != "" {
		natsconn.SetHeader(m, "Content-Type", p.Type)
	}
	u.conn.Inject(ctx, m)
	err := u.conn.PublishMsg(ctx, u.conn.RetryIdempotent, what, m)
	if many, full := natsconn.Rejected(err); many || full {
		return fmt.Errorf("%s: %w: the stream takes no more", what, jobs.ErrFull)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && !natsconn.IsTransient(err) {
		return jobs.Errorf(jobs.CodeInvalid, "%s: %v: correct the sink, or the stream", what, err)
	}
	return err
}

// Published returns the id of the last message of a subject in a stream, or "" if there is none. A
// job that starts again uses it to find the message from which to continue.
func (u *Streams) Published(ctx context.Context, stream, subject string) (id string, err error) {
	err = u.conn.Retry(ctx, "look at stream "+stream, func(ctx context.Context) error {
		s, err := u.conn.JS.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return jobs.Errorf(jobs.CodeInvalid, "there is no stream %s: make one that holds %s", stream, subject)
		}
		if err != nil {
			return err
		}
		for _, held := range s.CachedInfo().Config.Subjects {
			if overlap(held, subject) {
				return nil
			}
		}
		return jobs.Errorf(jobs.CodeInvalid, "stream %s does not hold %s, it holds %s: correct the sink, or the "+
			"stream", stream, subject, strings.Join(s.CachedInfo().Config.Subjects, ", "))
	})
	if err != nil {
		return "", err
	}
	m, err := u.conn.Last(ctx, stream, subject)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	return m.Header.Get(jetstream.MsgIDHeader), nil
}
