// Package objectstore reads and writes the buckets of object stores with the protocol S3 and of
// Google's object store.
//
// It has two users. Package cpuagents/remote/cloud opens the buckets of sources and sinks: its
// clients pass the egress guard, bound each answer and repeat nothing. Package
// internal/app/bucket/cloud opens the buckets of snapshots, with the login of the process.
package objectstore

import (
	"context"
	"errors"
	"io"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
)

// Bucket is a bucket of an object store. An object is there as a whole or not at all. Methods may
// be called concurrently, except Close, which is the last call. Status tells which errors a
// repetition may repair.
type Bucket interface {
	// Page adds up to size objects below a prefix in the order of their keys, and returns the token
	// of the next page; empty for none. The first token is empty. With a delimiter, the keys up to
	// the next one behind the prefix are added once, as folders. They end in it. Other contents of
	// an object have another tag.
	Page(
		ctx context.Context, prefix, delimiter, token string, size int, add func(key string, size int64, tag string),
	) (next string, err error)
	// Read returns the contents of an object. It fails with status 412 if the object has another
	// tag. An empty tag reads any version, and so does a store that cannot tell.
	Read(ctx context.Context, key, tag string) (io.ReadCloser, error)
	// Put replaces an object.
	Put(ctx context.Context, key, mediaType string, data []byte) error
	// Create begins an object. The caller ends it with Commit or Abort.
	Create(ctx context.Context, key string) (Upload, error)
	// Delete removes an object. It fails with status 404 if there is none, or succeeds.
	Delete(ctx context.Context, key string) error
	// Status returns the answer of a store to a call that failed with err; 0 for an error of
	// another kind. It is 200 for an answer that no object store gives.
	Status(err error) (status int, code string)
	// Close releases the connections.
	Close() error
}

// Upload is an object on its way. It replaces an earlier one when it is committed. One goroutine
// calls its methods.
type Upload interface {
	io.Writer
	Commit() error
	// Abort drops the object. After Commit, or a second time, it does nothing.
	Abort()
}

var errAnswer = errors.New("its answer is not that of an object store")

// answers implements Bucket.Status.
type answers struct{}

// Status implements Bucket.
func (answers) Status(err error) (status int, code string) {
	var google *googleapi.Error
	var token *oauth2.RetrieveError
	var amazon *awshttp.ResponseError
	var api smithy.APIError
	switch {
	case errors.Is(err, errAnswer):
		return http.StatusOK, ""
	case errors.As(err, &google):
		if len(google.Errors) > 0 {
			code = google.Errors[0].Reason
		}
		return google.Code, code
	case errors.As(err, &token) && token.Response != nil:
		return token.Response.StatusCode, token.ErrorCode
	}
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	// An answer of success that was cut off may come whole the next time.
	if errors.As(err, &amazon) && amazon.HTTPStatusCode() >= http.StatusMultipleChoices {
		return amazon.HTTPStatusCode(), code
	}
	switch gcerrors.Code(err) { // of a bucket in memory
	case gcerrors.NotFound:
		return http.StatusNotFound, code
	case gcerrors.FailedPrecondition:
		return http.StatusPreconditionFailed, code
	}
	return 0, code
}
