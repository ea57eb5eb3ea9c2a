package cloud

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

// googleStore is the endpoint of Google's store.
const googleStore = "https://storage.googleapis.com"

// openGCS opens a bucket of Google's store, or of a store with the same protocol. It takes nothing
// from the environment, the files or the cloud of the agent. The library retries nothing, because
// the callers of remote.Store do.
func openGCS(
	name string, spec remote.StoreSpec, most int64, guard *access.Guard, secrets *access.Store,
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
		key, err := google.JWTConfigFromJSON([]byte(v.Reveal()), objectstore.GoogleScope)
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
	return objectstore.OpenGCS(context.Background(), name, first, idle, option.WithHTTPClient(client))
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
