// Package gcsstore is the driver of Google's object store. It registers itself for gs:// when it is
// imported.
package gcsstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
)

func init() { remote.RegisterStore("gs", open) }

// googleStore is the endpoint of Google's store.
const googleStore = "https://storage.googleapis.com"

// open opens a bucket of Google's store, or of a store with the same protocol. It takes nothing
// from the environment, the files or the cloud of the agent. The library retries nothing, because
// the callers of remote.Store do. A version is a generation, and a read of another generation fails.
func open(
	name string, spec remote.StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store,
) (remote.Bucket, error) {
	if spec.Region != "" || spec.AccessKey != "" || spec.SecretKey != "" || spec.SessionToken != "" {
		return nil, errors.New(
			"region, access_key, secret_key and session_token are for s3://: leave them out, and name the key of a " +
				"service account (account)",
		)
	}
	first := googleStore
	if spec.Endpoint != "" {
		first = strings.TrimRight(spec.Endpoint, "/")
	}
	if err := remote.CheckURL(first+"/", guard); err != nil {
		return nil, err
	}
	client := guard.Client(false)
	idle := client.CloseIdleConnections
	client.Transport = bounded{client.Transport, most}
	if spec.Account != "" {
		v, err := secrets.At(remote.HostOf(first)).Get(spec.Account)
		if err != nil {
			return nil, err
		}
		key, err := google.JWTConfigFromJSON([]byte(v.Reveal()), storage.DevstorageReadWriteScope)
		if err != nil || remote.CheckURL(key.TokenURL, guard) != nil { // the error may have a part of the key in it
			return nil, errors.New(
				"account: use the key of a service account, in JSON, whose token_uri is in --egress " +
					"(oauth2.googleapis.com)",
			)
		}
		// Tokens are asked for by the same client, so that they go nowhere else.
		tokens := key.TokenSource(
			context.WithValue(
				context.Background(), oauth2.HTTPClient,
				&http.Client{Transport: client.Transport, CheckRedirect: client.CheckRedirect},
			),
		)
		client.Transport = &oauth2.Transport{Base: client.Transport, Source: tokens}
	}
	s, err := storage.NewService(
		context.Background(), option.WithHTTPClient(client), option.WithEndpoint(first+"/storage/v1/"),
	)
	if err != nil {
		return nil, err
	}
	return &bucket{s.Objects, name, idle}, nil
}

// bucket is a bucket of Google's store, by the generated client of its JSON API. The library
// above that client contains gRPC and exporters of metrics, several MB of each program.
type bucket struct {
	objects *storage.ObjectsService
	name    string
	idle    func() // closes idle connections
}

// Page implements remote.Bucket.
func (b *bucket) Page(ctx context.Context, token string, size int, prefix string) ([]remote.Listed, string, error) {
	page, err := b.objects.List(b.name).Prefix(prefix).PageToken(token).MaxResults(int64(size)).Context(ctx).Do()
	if err != nil {
		return nil, "", err
	}
	list := make([]remote.Listed, len(page.Items))
	for i, o := range page.Items {
		if o == nil || o.Name == "" || o.Size > math.MaxInt64 {
			return nil, "", remote.ErrNoAnswer
		}
		list[i].Object = remote.Object{Key: o.Name, Size: int64(o.Size), Tag: strconv.FormatInt(o.Generation, 10)}
	}
	return list, page.NextPageToken, nil
}

// Read implements remote.Bucket.
func (b *bucket) Read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	call := b.objects.Get(b.name, key).Context(ctx)
	if generation, err := strconv.ParseInt(tag, 10, 64); err == nil && generation > 0 {
		call.IfGenerationMatch(generation)
	}
	answer, err := call.Download()
	switch status, _ := b.Status(err); {
	case status == http.StatusNotFound:
		return nil, remote.ErrGone
	case status == http.StatusPreconditionFailed:
		return nil, remote.ErrChanged
	case err != nil:
		return nil, err
	}
	return answer.Body, nil
}

// Put implements remote.Bucket.
func (b *bucket) Put(ctx context.Context, key, mediaType string, data []byte) error {
	// Without a chunk size the bytes are sent in one request, which is not repeated.
	_, err := b.objects.Insert(b.name, &storage.Object{Name: key}).
		Media(bytes.NewReader(data), googleapi.ContentType(mediaType), googleapi.ChunkSize(0)).Context(ctx).Do()
	return err
}

// Status implements remote.Bucket.
func (b *bucket) Status(err error) (status int, code string) {
	var answer *googleapi.Error
	var token *oauth2.RetrieveError
	switch {
	case errors.As(err, &answer):
		if status = answer.Code; len(answer.Errors) > 0 {
			code = answer.Errors[0].Reason
		}
	case errors.As(err, &token) && token.Response != nil:
		status, code = token.Response.StatusCode, token.ErrorCode
	}
	return status, code
}

// Close implements remote.Bucket.
func (b *bucket) Close() error {
	b.idle()
	return nil
}

// bounded refuses an answer of more than most bytes. The bound is on the body, and reading beyond
// it is remote.ErrLong.
type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper. The answer has its header unchanged.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = remote.Cap(resp.Body, b.most)
	return resp, nil
}
