package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// partBytes bounds a part, which is held in memory, in bytes. It ends a part that has fewer rows
// than it should.
const partBytes = 64 << 20

// objectWriter stores documents under names. A document replaces another one of the same name, as a
// whole or not at all. files.Folder and remote.Store implement it.
type objectWriter interface {
	Put(ctx context.Context, name, mediaType string, data []byte) error
	Close() error
}

// objectSink writes decisions into files or objects. A part is named after its first batch, so an
// attempt that makes the same batches again writes the same bytes under the same names.
type objectSink struct {
	base
	positionLog
	rows.Document
	to    objectWriter
	ext   string
	first uint64 // batch of the part that is being collected
	last  uint64
}

// newObject returns the sink of a folder or an object store. The caller has checked PartRows.
func newObject(b base, p rows.Document, s Resources) (_ *objectSink, err error) {
	t := &objectSink{base: b, Document: p, ext: "." + string(p.Format)}
	if t.spec.PartRows == 0 {
		t.spec.PartRows = defaultPartRows
	}
	if remote.IsObject(b.spec.URI) {
		store := b.spec.Object
		if store == nil {
			store = &remote.StoreSpec{}
		}
		t.to, err = remote.OpenStore(b.where, b.spec.URI, *store, remote.MaxListBytes, s.Egress, s.Secrets)
	} else if b.spec.Object != nil {
		return nil, b.bad("object is for s3:// and gs://: leave it out")
	} else {
		t.to, err = s.Files.OpenFolder(b.spec.URI)
	}
	if err != nil {
		return nil, b.bad("%v", err)
	}
	return t, nil
}

// Send implements Sink. It holds decisions until a part is complete. A part ends with a batch, so
// its name and contents do not depend on the attempt.
func (t *objectSink) Send(ctx context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.sent {
		return nil
	}
	for i := range d.Len() {
		if !t.wanted(d, i) {
			continue
		}
		if t.Rows() == 0 {
			t.first = number
		}
		if err := t.Add(d, i); err != nil {
			return err
		}
	}
	t.last = number
	if t.Rows() >= t.spec.PartRows || t.Size() >= partBytes {
		return t.End(ctx)
	}
	return nil
}

// End implements Sink. It writes the part that is collected and then stores the position. After a
// crash between the two the next attempt writes the same part again.
func (t *objectSink) End(ctx context.Context) error {
	if t.Rows() == 0 {
		return nil
	}
	data, err := t.Take()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("part-%012d%s", t.first, t.ext)
	media := t.MediaType()
	err = t.try(ctx, func(ctx context.Context) error {
		err := t.to.Put(ctx, name, media, data)
		var typed *jobs.Error
		if errors.As(err, &typed) && typed.Code == jobs.CodeInput { // a path, rights
			err = retry.Permanent(err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	return t.advance(ctx, t.last)
}

func (t *objectSink) Held() uint64 {
	if t.Rows() == 0 {
		return 0
	}
	return t.first
}

// Close implements Sink. It discards a part that is not written.
func (t *objectSink) Close() { _ = t.to.Close() }
