package cloud

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
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/oauth2"
	oauth "golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

// googleScope is the right that a login to Google's store needs.
const googleScope = storage.DevstorageReadWriteScope

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

// openGCS opens a bucket of Google's store, or of the store at an endpoint.
func openGCS(ctx context.Context, o objectstore.Options) (objectstore.Bucket, error) {
	options, idle := []option.ClientOption{option.WithScopes(googleScope)}, func() {}
	if o.Client != nil {
		client, err := googleClient(o)
		if err != nil {
			return nil, err
		}
		options, idle = []option.ClientOption{option.WithHTTPClient(client)}, o.Client.CloseIdleConnections
	}
	for k, v := range o.Query {
		switch {
		case k == "endpoint":
			e, err := url.Parse(v[0])
			if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.RawQuery != "" {
				return nil, fmt.Errorf("endpoint %q: write the URL of a store", v[0])
			}
			o.Endpoint = v[0]
		case k == "anonymous" && v[0] == "true":
			options = append(options, option.WithoutAuthentication())
		default:
			return nil, fmt.Errorf("unknown query parameter %s=%s: use endpoint=URL and anonymous=true", k, v[0])
		}
	}
	if o.Endpoint != "" {
		options = append(options, option.WithEndpoint(strings.TrimRight(o.Endpoint, "/")+"/storage/v1/"))
	}
	// Connections of the client of the process end by themselves when they are idle.
	s, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, err
	}
	return &google{objects: s.Objects, bucket: o.Bucket, idle: idle}, nil
}

// googleClient returns the client of the options with the login of their account. Tokens are asked
// for by the same client, so that they go nowhere else.
func googleClient(o objectstore.Options) (*http.Client, error) {
	if len(o.Account) == 0 {
		return o.Client, nil
	}
	key, err := oauth.JWTConfigFromJSON(o.Account, googleScope)
	if err != nil || o.TokenURL(key.TokenURL) != nil { // the error may have a part of the key in it
		return nil, objectstore.ErrAccount
	}
	client := *o.Client
	plain := client
	client.Transport = &oauth2.Transport{
		Base:   o.Client.Transport,
		Source: key.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, &plain)),
	}
	return &client, nil
}

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
			return "", objectstore.ErrAnswer
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

func (g *google) Put(ctx context.Context, key, mediaType string, data []byte) error {
	// Without a chunk size the bytes are sent in one request, which is not repeated.
	_, err := g.objects.Insert(g.bucket, &storage.Object{Name: key}).
		Media(bytes.NewReader(data), googleapi.ContentType(mediaType), googleapi.ChunkSize(0)).Context(ctx).Do()
	return err
}

// Create implements Bucket. The store makes the object when the last part is there, so that an
// upload that is given up leaves nothing to see.
func (g *google) Create(ctx context.Context, key string) (objectstore.Upload, error) {
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

func (g *google) Delete(ctx context.Context, key string) error {
	return g.objects.Delete(g.bucket, key).Context(ctx).Do()
}

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
