package remote

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
)

// googleStore is the endpoint of Google's store.
const googleStore = "https://storage.googleapis.com"

// openGCS opens a bucket of Google's store, or of a store with the same protocol. It takes nothing
// from the environment, the files or the cloud of the agent. The library retries nothing, because
// the callers of Store do. A version is a generation, and a read of another generation fails.
func (o *Store) openGCS(bucket string, spec StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store) error {
	if spec.Region != "" || spec.AccessKey != "" || spec.SecretKey != "" || spec.SessionToken != "" {
		return errors.New(
			"region, access_key, secret_key and session_token are for s3://: leave them out, and name the key of a " +
				"service account (account)",
		)
	}
	first := googleStore
	if spec.Endpoint != "" {
		first = strings.TrimRight(spec.Endpoint, "/")
	}
	if err := storeURL(first+"/", guard); err != nil {
		return err
	}
	client := guard.Client(false)
	o.idle = client.CloseIdleConnections
	client.Transport = bounded{client.Transport, most}
	if spec.Account != "" {
		v, err := secrets.At(hostOf(first)).Get(spec.Account)
		if err != nil {
			return err
		}
		key, err := google.JWTConfigFromJSON([]byte(v.Reveal()), storage.ScopeReadWrite)
		if err != nil || storeURL(key.TokenURL, guard) != nil { // the error may have a part of the key in it
			return errors.New(
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
	ctx := context.Background()
	gcs, err := storage.NewClient(
		ctx, option.WithHTTPClient(client), option.WithEndpoint(first+"/storage/v1/"), storage.WithJSONReads(),
	)
	if err != nil {
		return err
	}
	gcs.SetRetry(storage.WithPolicy(storage.RetryNever)) // whoever asks tries again
	if o.bucket, err = gcsblob.OpenBucket(ctx, nil, bucket, &gcsblob.Options{Client: gcs}); err != nil {
		return err
	}
	o.tag = func(b *blob.ListObject) string {
		var s storage.ObjectAttrs
		if b.As(&s) {
			return strconv.FormatInt(s.Generation, 10)
		}
		return ""
	}
	o.pin = func(as func(any) bool, tag string) error {
		var h **storage.ObjectHandle
		if generation, err := strconv.ParseInt(tag, 10, 64); err == nil && as(&h) {
			*h = (*h).If(storage.Conditions{GenerationMatch: generation})
		}
		return nil
	}
	o.status = func(err error) (status int, code string) {
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
