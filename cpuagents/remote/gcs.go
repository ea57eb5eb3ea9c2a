package remote

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
	"github.com/exoswarm/exoswarm/cpuagents/secret"
)

// googleStore is the endpoint of Google's store.
const googleStore = "https://storage.googleapis.com"

// openGCS opens a bucket of Google's store, or of a store with the same protocol. It takes nothing
// from the environment, the files or the cloud of the agent. The library retries nothing, because
// the callers of Store do. A version is a generation, and a read of another generation fails.
func openGCS(name string, spec StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store) (bucket, error) {
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
	if err := storeURL(first+"/", guard); err != nil {
		return nil, err
	}
	client := guard.Client(false)
	idle := client.CloseIdleConnections
	client.Transport = bounded{client.Transport, most}
	if spec.Account != "" {
		v, err := secrets.At(hostOf(first)).Get(spec.Account)
		if err != nil {
			return nil, err
		}
		key, err := google.JWTConfigFromJSON([]byte(v.Reveal()), storage.DevstorageReadWriteScope)
		if err != nil || storeURL(key.TokenURL, guard) != nil { // the error may have a part of the key in it
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
	return &googleBucket{s.Objects, name, idle}, nil
}

// googleBucket is a bucket of Google's store, by the generated client of its JSON API. The library
// above that client contains gRPC and exporters of metrics, several MB of each program.
type googleBucket struct {
	objects *storage.ObjectsService
	name    string
	idle    func() // closes idle connections
}

// page implements bucket.
func (b *googleBucket) page(ctx context.Context, token string, size int, prefix string) ([]listed, string, error) {
	page, err := b.objects.List(b.name).Prefix(prefix).PageToken(token).MaxResults(int64(size)).Context(ctx).Do()
	if err != nil {
		return nil, "", err
	}
	list := make([]listed, len(page.Items))
	for i, o := range page.Items {
		if o == nil || o.Name == "" || o.Size > math.MaxInt64 {
			return nil, "", errNoAnswer
		}
		list[i] = listed{Object: Object{Key: o.Name, Size: int64(o.Size), Tag: strconv.FormatInt(o.Generation, 10)}}
	}
	return list, page.NextPageToken, nil
}

// read implements bucket.
func (b *googleBucket) read(ctx context.Context, key, tag string) (io.ReadCloser, error) {
	call := b.objects.Get(b.name, key).Context(ctx)
	if generation, err := strconv.ParseInt(tag, 10, 64); err == nil && generation > 0 {
		call.IfGenerationMatch(generation)
	}
	answer, err := call.Download()
	switch status, _ := b.status(err); {
	case status == http.StatusNotFound:
		return nil, ErrGone
	case status == http.StatusPreconditionFailed:
		return nil, ErrChanged
	case err != nil:
		return nil, err
	}
	return answer.Body, nil
}

// put implements bucket.
func (b *googleBucket) put(ctx context.Context, key, mediaType string, data []byte) error {
	// Without a chunk size the bytes are sent in one request, which is not repeated.
	_, err := b.objects.Insert(b.name, &storage.Object{Name: key}).
		Media(bytes.NewReader(data), googleapi.ContentType(mediaType), googleapi.ChunkSize(0)).Context(ctx).Do()
	return err
}

// status implements bucket.
func (b *googleBucket) status(err error) (status int, code string) {
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

// close implements bucket.
func (b *googleBucket) close() error {
	b.idle()
	return nil
}

// bounded refuses an answer of more than most bytes. The bound is on the body, and reading beyond
// it is errLong.
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
	resp.Body = limitedBody{&capped{resp.Body, b.most}, resp.Body}
	return resp, nil
}
