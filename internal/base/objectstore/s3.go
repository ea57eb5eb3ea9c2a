package objectstore

import (
	"context"
	"io"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// blobBucket is a bucket of gocloud.dev.
type blobBucket struct {
	answers
	*blob.Bucket
	idle func() // closes idle connections
}

// S3 returns a bucket of a store with the protocol S3, by a client that idle tells to close its
// idle connections. It makes no connection.
func S3(client *s3.Client, name string, idle func()) (Bucket, error) {
	b, err := s3blob.OpenBucket(context.Background(), client, name, nil)
	if err != nil {
		return nil, err
	}
	return &blobBucket{Bucket: b, idle: idle}, nil
}

// OpenS3 opens s3://BUCKET with what gocloud.dev's s3blob takes in its query. The login is that of
// AWS's own tools. Nothing is sent before the first call.
func OpenS3(ctx context.Context, u *url.URL) (Bucket, error) {
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return Blob(b), nil
}

// Blob returns a bucket of gocloud.dev. Tests use it with a bucket in memory: its tags are the MD5
// of an object and its time, and its reads compare none.
func Blob(b *blob.Bucket) Bucket { return &blobBucket{Bucket: b, idle: func() {}} }

// Page implements Bucket. The library has the token as bytes, and one of its own for the first
// page.
func (b *blobBucket) Page(
	ctx context.Context, prefix, delimiter, token string, size int, add func(key string, size int64, tag string),
) (next string, err error) {
	from := blob.FirstPageToken
	if token != "" {
		from = []byte(token)
	}
	page, following, err := b.ListPage(ctx, from, size, &blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
	for _, o := range page {
		tag := string(o.MD5) + o.ModTime.String()
		var s types.Object
		if o.As(&s) {
			tag = aws.ToString(s.ETag)
		}
		add(o.Key, o.Size, tag)
	}
	return string(following), err
}

// Read implements Bucket.
func (b *blobBucket) Read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	return b.NewReader(ctx, key, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		var in *s3.GetObjectInput
		if as(&in) && tag != "" {
			in.IfMatch = aws.String(tag)
		}
		return nil
	}})
}

// Put implements Bucket.
func (b *blobBucket) Put(ctx context.Context, key, mediaType string, data []byte) error {
	return b.WriteAll(ctx, key, data, &blob.WriterOptions{
		ContentType: mediaType, DisableContentTypeDetection: true,
	})
}

// Create implements Bucket. A rule of the bucket removes the parts of uploads that nobody ended.
func (b *blobBucket) Create(ctx context.Context, key string) (Upload, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.NewWriter(ctx, key, &blob.WriterOptions{ContentType: mediaType})
	if err != nil {
		cancel()
		return nil, err
	}
	return &blobUpload{Writer: w, cancel: cancel}, nil
}

// Close implements Bucket.
func (b *blobBucket) Close() error {
	b.idle()
	return b.Bucket.Close()
}

// blobUpload implements Upload.
type blobUpload struct {
	*blob.Writer
	cancel context.CancelFunc
	ended  bool
}

// Commit implements Upload.
func (u *blobUpload) Commit() error {
	u.ended = true
	defer u.cancel()
	return u.Close()
}

// Abort implements Upload: an upload whose context has ended is given up.
func (u *blobUpload) Abort() {
	if u.ended {
		return
	}
	u.ended = true
	u.cancel()
	_ = u.Close() // it says that it was given up
}
