package remote

import (
	"context"
	"io"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
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

// page implements bucket. The library has the token as bytes, and one of its own for the first page.
func (b *blobBucket) page(ctx context.Context, token string, size int, prefix string) ([]listed, string, error) {
	from := blob.FirstPageToken
	if token != "" {
		from = []byte(token)
	}
	page, next, err := b.ListPage(ctx, from, size, &blob.ListOptions{Prefix: prefix})
	if err != nil {
		return nil, "", err
	}
	list := make([]listed, len(page))
	for i, o := range page {
		list[i] = listed{Object{Key: o.Key, Size: o.Size, Tag: b.tag(o)}, o.IsDir}
	}
	return list, string(next), nil
}

// read implements bucket.
func (b *blobBucket) read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	options := &blob.ReaderOptions{}
	if b.pin != nil {
		options.BeforeRead = func(as func(any) bool) error { return b.pin(as, tag) }
	}
	r, err := b.NewReader(ctx, key, options)
	switch gcerrors.Code(err) {
	case gcerrors.OK:
		return r, nil
	case gcerrors.NotFound:
		return nil, ErrGone
	case gcerrors.FailedPrecondition:
		return nil, ErrChanged
	default:
		return nil, err
	}
}

// put implements bucket.
func (b *blobBucket) put(ctx context.Context, key, mediaType string, data []byte) error {
	return b.WriteAll(ctx, key, data, &blob.WriterOptions{
		ContentType:                 mediaType,
		DisableContentTypeDetection: true,
	})
}

// status implements bucket.
func (b *blobBucket) status(err error) (status int, code string) {
	if b.answer == nil {
		return 0, ""
	}
	return b.answer(err)
}

// close implements bucket.
func (b *blobBucket) close() error {
	b.idle()
	return b.Close()
}
