package source

import (
	"context"
	"errors"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// ObjectSpec says how the objects at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX are watched. The zero
// value reads the present objects once, without credentials.
type ObjectSpec struct {
	// WatchSpec without Renamed: an object is complete when it is there.
	WatchSpec
	// Timeout bounds a page of the list, and an object, in seconds, 0.1 to 3,600; 0 means 60.
	Timeout float64 `json:"timeout_s,omitempty"`
	remote.StoreSpec
}

func newObjectWatcher(
	uri string, format rows.Format, spec *ObjectSpec, guard *access.Guard, secrets *access.Store,
) (*watcher, error) {
	where := remote.WithoutQuery(uri)
	bad := badSource(where)
	if spec == nil {
		spec = &ObjectSpec{}
	}
	f, err := newWatcher(where, format, &spec.WatchSpec)
	if err != nil {
		return nil, err
	}
	f.whole = true
	bounds, err := remote.Limits{Timeout: spec.Timeout}.WithDefaults()
	if err != nil {
		return nil, bad("%v", err)
	}
	if spec.Renamed {
		return nil, bad("renamed: an object is complete when it is there: leave it out")
	}
	src, err := remote.OpenStore(
		where, uri, spec.StoreSpec, max(f.limits.MaxBytes, remote.MaxListBytes), guard, secrets,
	)
	if err != nil {
		return nil, bad("%v", err)
	}
	src.Timeout = bounds.RequestTimeout()
	f.src = &bucket{src, f.wanted}
	return f, nil
}

type bucket struct {
	*remote.Store
	wanted func(key string) bool
}

// list implements watchable: in the order of the keys. Objects that are not wanted are listed as
// such, because they count against most.
func (b *bucket) list(ctx context.Context, most int) ([]listed, error) {
	all, err := b.List(ctx, most)
	if err != nil {
		return nil, err
	}
	list := make([]listed, len(all))
	for i, o := range all {
		list[i] = listed{name: o.Key, size: o.Size, tag: o.Tag, pass: !b.wanted(o.Key)}
	}
	return list, nil
}

// copy implements watchable. The store checks the version, so a changed object is errWritten and is
// listed again.
func (b *bucket) copy(ctx context.Context, l listed, doc *os.File) error {
	err := b.Read(ctx, remote.Object{Key: l.name, Size: l.size, Tag: l.tag}, files.ScratchWriter(doc))
	switch {
	case errors.Is(err, remote.ErrGone):
		return unreadable{"it vanished before it was read"}
	case errors.Is(err, remote.ErrChanged):
		return errWritten
	}
	return err
}
