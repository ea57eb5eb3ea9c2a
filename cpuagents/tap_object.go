package cpuagents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/internal/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// partBytes ends a part before it has its rows: it is held in memory.
const partBytes = 64 << 20

// putter keeps a document under a name, in place of one that was there, whole or not at all.
type putter interface {
	Put(ctx context.Context, name, mediaType string, data []byte) error
	Close() error
}

// objectTap writes decisions into files or objects. A part is called after its first batch, so whoever makes the same batches again writes the same
// bytes under the same names.
type objectTap struct {
	sinkBase
	mark
	encode.Document
	to    putter
	ext   string
	first uint64 // batch of the part that is being collected
	last  uint64
}

func newObjectTap(b sinkBase, p encode.Document, s *Streamer) (_ *objectTap, err error) {
	t := &objectTap{sinkBase: b, Document: p, ext: "." + string(p.Format)}
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

// send implements tap.
func (t *objectTap) send(ctx context.Context, number uint64, d *batch.Decisions) error {
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
		return t.end(ctx)
	}
	return nil
}

// end implements tap.
func (t *objectTap) end(ctx context.Context) error {
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
	return t.set(ctx, t.last)
}

func (t *objectTap) close() { _ = t.to.Close() }
