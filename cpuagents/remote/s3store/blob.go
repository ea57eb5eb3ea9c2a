package s3store

import (
	"context"
	"io"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
)

// blobBucket is a bucket of gocloud.dev.
type blobBucket struct {
	*blob.Bucket
	tag func(o *blob.ListObject) string // the version of an object
	// pin makes a read fail for another version; nil where the size is compared alone.
	pin    func(as func(any) bool, tag string) error
	answer func(err error) (status int, code string) // of status; nil for none
	idle   func()                                    // closes idle connections
}

// Wrap returns a bucket of gocloud.dev as sources and sinks use it. A version is the MD5 of an
// object and its time. Reads compare no version, so the caller compares the size. Tests use it with
// a bucket in memory.
func Wrap(b *blob.Bucket) remote.Bucket {
	tag := func(o *blob.ListObject) string { return string(o.MD5) + o.ModTime.String() }
	return &blobBucket{Bucket: b, tag: tag, idle: func() {}}
}

// Page implements remote.Bucket. The library has the token as bytes, and one of its own for the first page.
func (b *blobBucket) Page(ctx context.Context, token string, size int, prefix string) ([]remote.Listed, string, error) {
	from := blob.FirstPageToken
	if token != "" {
		from = []byte(token)
	}
	page, next, err := b.ListPage(ctx, from, size, &blob.ListOptions{Prefix: prefix})
	if err != nil {
		return nil, "", err
	}
	list := make([]remote.Listed, len(page))
	for i, o := range page {
		list[i] = remote.Listed{
			Object: remote.Object{Key: o.Key, Size: o.Size, Tag: b.tag(o)}, Folder: o.IsDir,
		}
	}
	return list, string(next), nil
}

// Read implements remote.Bucket.
func (b *blobBucket) Read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	options := &blob.ReaderOptions{}
	if b.pin != nil {
		options.BeforeRead = func(as func(any) bool) error { return b.pin(as, tag) }
	}
	r, err := b.NewReader(ctx, key, options)
	switch gcerrors.Code(err) {
	case gcerrors.OK:
		return r, nil
	case gcerrors.NotFound:
		return nil, remote.ErrGone
	case gcerrors.FailedPrecondition:
		return nil, remote.ErrChanged
	default:
		return nil, err
	}
}

// Put implements remote.Bucket.
func (b *blobBucket) Put(ctx context.Context, key, mediaType string, data []byte) error {
	return b.WriteAll(ctx, key, data, &blob.WriterOptions{
		ContentType:                 mediaType,
		DisableContentTypeDetection: true,
	})
}

// Status implements remote.Bucket.
func (b *blobBucket) Status(err error) (status int, code string) {
	if b.answer == nil {
		return 0, ""
	}
	return b.answer(err)
}

// Close implements remote.Bucket.
func (b *blobBucket) Close() error {
	b.idle()
	return b.Bucket.Close()
}
