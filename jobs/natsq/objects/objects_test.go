package objects_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// breaking is a file whose first passes end as a publication does whose acknowledgement is lost.
type breaking struct {
	*bytes.Reader
	left, passes int
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.passes > 0 && b.Len() < b.left {
		b.passes--
		return 0, nats.ErrTimeout
	}
	return b.Reader.Read(p)
}

// TestPutObjectAgain: what the server did not acknowledge is stored again, from where the reader
// stood, when the reader can go back; and not for ever.
func TestPutObjectAgain(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for passes, want := range map[int]error{0: nil, 2: nil, 100: jobs.ErrUnavailable} {
		r := &breaking{bytes.NewReader(data), len(data) / 2, passes}
		if _, err := r.Seek(100, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Objects.PutObject(t.Context(), "o", jobs.Owner{}, r); !errors.Is(err, want) || err == nil &&
			n != int64(len(data)-100) {
			t.Fatalf("%d passes broken: %d bytes, %v, want %v", passes, n, err, want)
		}
		if want != nil {
			continue
		}
		o, err := c.Objects.Object(t.Context(), "o", jobs.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, data[100:]) {
			t.Fatalf("%d passes broken: read back %d bytes, %v", passes, len(got), err)
		}
		o.Close()
	}
	// One that cannot go back is not begun again.
	once := &breaking{bytes.NewReader(data), len(data) / 2, 1}
	if _, err := c.Objects.PutObject(t.Context(), "o", jobs.Owner{}, struct{ io.Reader }{once}); !errors.Is(err,
		jobs.ErrUnavailable) {
		t.Fatal(err)
	}
}

// TestLateDescription: the description of an upload that got no answer may be stored after the
// description of the next try. It does not replace it: its content may be gone.
func TestLateDescription(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	data := bytes.Repeat([]byte("x"), 300<<10)
	for _, version := range []string{"first", "second"} {
		sub, err := c.NC.SubscribeSync("$O.EXO_OBJECTS.M.>")
		if err := errors.Join(err, c.NC.Flush()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Objects.PutObject(t.Context(), "o", jobs.Owner{}, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		late, err := sub.NextMsgWithContext(t.Context())
		if err := errors.Join(err, sub.Unsubscribe()); err != nil {
			t.Fatal(err)
		}
		late.Header.Del(jetstream.MsgIDHeader) // the server forgets it after two minutes
		late.Reply = ""
		if _, err := c.JS.PublishMsg(t.Context(), late); !natsconn.IsWrongRevision(err) {
			t.Errorf("%s: a late description: %v, want a refusal", version, err)
		}
		o, err := c.Objects.Object(t.Context(), "o", jobs.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: read back %d bytes, %v", version, len(got), err)
		}
		o.Close()
	}
}
