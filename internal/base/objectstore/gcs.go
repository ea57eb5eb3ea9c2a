package objectstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"
)

// GoogleScope is the right that a login to Google's store needs.
const GoogleScope = storage.DevstorageReadWriteScope

// mediaType is the type of an object that Create makes.
const mediaType = "application/octet-stream"

// google is a bucket of Google's store, or of a store with the same JSON API. It uses the generated
// client of that API: the library above it contains gRPC, its metrics and their exporters, 7 MB of
// each program.
type google struct {
	answers
	objects *storage.ObjectsService
	bucket  string
	idle    func() // closes idle connections
}

// OpenGCS opens a bucket of Google's store, or of the store at an endpoint. Without an option of a
// client or a login it has the application default credentials. Nothing is sent before the first
// call.
func OpenGCS(
	ctx context.Context, bucket, endpoint string, idle func(), options ...option.ClientOption,
) (Bucket, error) {
	if endpoint != "" {
		options = append(options, option.WithEndpoint(strings.TrimRight(endpoint, "/")+"/storage/v1/"))
	}
	s, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, err
	}
	return &google{objects: s.Objects, bucket: bucket, idle: idle}, nil
}

// Page implements Bucket.
func (g *google) Page(
	ctx context.Context, prefix, delimiter, token string, size int, add func(key string, size int64, tag string),
) (next string, err error) {
	page, err := g.objects.List(g.bucket).Prefix(prefix).Delimiter(delimiter).PageToken(token).
		MaxResults(int64(size)).Context(ctx).Do()
	if err != nil {
		return "", err
	}
	for _, o := range page.Items {
		if o == nil || o.Name == "" || o.Size > math.MaxInt64 {
			return "", errAnswer
		}
		add(o.Name, int64(o.Size), strconv.FormatInt(o.Generation, 10))
	}
	for _, folder := range page.Prefixes {
		add(folder, 0, "")
	}
	return page.NextPageToken, nil
}

// Read implements Bucket. A tag is a generation.
func (g *google) Read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	call := g.objects.Get(g.bucket, key).Context(ctx)
	if generation, err := strconv.ParseInt(tag, 10, 64); err == nil && generation > 0 {
		call.IfGenerationMatch(generation)
	}
	answer, err := call.Download()
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// Put implements Bucket.
func (g *google) Put(ctx context.Context, key, mediaType string, data []byte) error {
	// Without a chunk size the bytes are sent in one request, which is not repeated.
	_, err := g.objects.Insert(g.bucket, &storage.Object{Name: key}).
		Media(bytes.NewReader(data), googleapi.ContentType(mediaType), googleapi.ChunkSize(0)).Context(ctx).Do()
	return err
}

// Create implements Bucket. The store makes the object when the last part is there, so that an
// upload that is given up leaves nothing to see.
func (g *google) Create(ctx context.Context, key string) (Upload, error) {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	u := &googleUpload{to: to, sum: crc32.New(castagnoli), cancel: cancel, done: make(chan struct{})}
	call := g.objects.Insert(g.bucket, &storage.Object{Name: key}).Context(ctx)
	go func() {
		defer close(u.done)
		// Media reads the first part, so it is called here. WithRetry without values has the
		// defaults.
		u.made, u.err = call.Media(from, googleapi.ContentType(mediaType)).WithRetry(nil, nil).Do()
		// A writer that still waits learns why nobody reads.
		_ = from.CloseWithError(errors.Join(errUploadEnded, u.err))
	}()
	return u, nil
}

// Delete implements Bucket.
func (g *google) Delete(ctx context.Context, key string) error {
	return g.objects.Delete(g.bucket, key).Context(ctx).Do()
}

// Close implements Bucket.
func (g *google) Close() error {
	g.idle()
	return nil
}

var (
	castagnoli     = crc32.MakeTable(crc32.Castagnoli)
	errUploadEnded = errors.New("the upload has ended")
	errAborted     = errors.New("the upload was given up")
)

// googleUpload implements Upload. made and err are valid when done is closed.
type googleUpload struct {
	to     *io.PipeWriter
	sum    hash.Hash32
	cancel context.CancelFunc
	ended  bool

	done chan struct{}
	made *storage.Object
	err  error
}

// Write implements Upload.
func (u *googleUpload) Write(p []byte) (int, error) {
	n, err := u.to.Write(p)
	_, _ = u.sum.Write(p[:n]) // a hash never fails
	return n, err
}

// Commit implements Upload. It fails if the store has other bytes than were written.
func (u *googleUpload) Commit() error {
	if u.ended {
		return errUploadEnded
	}
	u.ended = true
	defer u.cancel()
	_ = u.to.Close() // of a pipe: always nil
	<-u.done
	if u.err != nil {
		return u.err
	}
	want := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, u.sum.Sum32()))
	if u.made.Crc32c != "" && u.made.Crc32c != want {
		return fmt.Errorf("%s: the store has checksum %s, the bytes sent have %s: write it again", u.made.Name,
			u.made.Crc32c, want)
	}
	return nil
}

// Abort implements Upload: an upload whose input fails is given up.
func (u *googleUpload) Abort() {
	if u.ended {
		return
	}
	u.ended = true
	_ = u.to.CloseWithError(errAborted)
	u.cancel()
	<-u.done
}
