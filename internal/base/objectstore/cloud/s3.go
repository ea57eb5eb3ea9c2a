package cloud

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"

	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

type blobBucket struct {
	answers
	*blob.Bucket
	idle func() // closes idle connections
}

// openS3 opens a bucket of Amazon's store, or of a store with the same protocol. Without a client
// it takes what gocloud.dev's s3blob takes in its query, and has the login of AWS's own tools.
func openS3(ctx context.Context, o objectstore.Options) (objectstore.Bucket, error) {
	if o.Client == nil {
		u := url.URL{Scheme: "s3", Host: o.Bucket, RawQuery: o.Query.Encode()}
		b, err := blob.OpenBucket(ctx, u.String())
		if err != nil {
			return nil, err
		}
		return Blob(b), nil
	}
	options := s3.Options{
		Region: o.Region, HTTPClient: lister{o.Client}, Credentials: aws.AnonymousCredentials{},
		Retryer: aws.NopRetryer{}, Logger: logging.Nop{},
		UsePathStyle: o.Endpoint != "" ||
			strings.Contains(o.Bucket, "."), // no certificate holds such a host
		ResponseChecksumValidation:                aws.ResponseChecksumValidationWhenSupported,
		DisableLogOutputChecksumValidationSkipped: true,
	}
	if o.Endpoint != "" {
		options.BaseEndpoint = aws.String(o.Endpoint)
	}
	if o.AccessKey != "" {
		options.Credentials = credentials.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.SessionToken)
	}
	b, err := s3blob.OpenBucket(ctx, s3.New(options), o.Bucket, nil)
	if err != nil {
		return nil, err
	}
	return &blobBucket{Bucket: b, idle: o.Client.CloseIdleConnections}, nil
}

// lister refuses a list that is none: the library takes any other text for a list without objects.
type lister struct{ *http.Client }

func (c lister) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	body := bufio.NewReader(resp.Body)
	if resp.StatusCode == http.StatusOK && r.URL.Query().Get("list-type") != "" {
		if head, _ := body.Peek(512); !bytes.Contains(head, []byte("<ListBucketResult")) {
			_ = resp.Body.Close()
			return nil, objectstore.ErrAnswer
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return resp, nil
}

// Blob returns a bucket of gocloud.dev. Tests use it with a bucket in memory: its tags are the MD5
// of an object and its time, and its reads compare none.
func Blob(b *blob.Bucket) objectstore.Bucket { return &blobBucket{Bucket: b, idle: func() {}} }

// Page implements Bucket. The library has the token as bytes, and a constant for the first page.
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

func (b *blobBucket) Read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	return b.NewReader(ctx, key, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		var in *s3.GetObjectInput
		if as(&in) && tag != "" {
			in.IfMatch = aws.String(tag)
		}
		return nil
	}})
}

func (b *blobBucket) Put(ctx context.Context, key, mediaType string, data []byte) error {
	return b.WriteAll(ctx, key, data, &blob.WriterOptions{
		ContentType: mediaType, DisableContentTypeDetection: true,
	})
}

// Create implements Bucket. A rule of the bucket removes the parts of uploads that nobody ended.
func (b *blobBucket) Create(ctx context.Context, key string) (objectstore.Upload, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.NewWriter(ctx, key, &blob.WriterOptions{ContentType: mediaType})
	if err != nil {
		cancel()
		return nil, err
	}
	return &blobUpload{Writer: w, cancel: cancel}, nil
}

func (b *blobBucket) Close() error {
	b.idle()
	return b.Bucket.Close()
}

type blobUpload struct {
	*blob.Writer
	cancel context.CancelFunc
	ended  bool
}

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
