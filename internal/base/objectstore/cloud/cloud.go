// Package cloud has the drivers of object stores with the protocol S3 (s3://) and of Google's
// object store (gs://). It registers them when it is imported.
package cloud

import (
	"errors"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

func init() {
	objectstore.Register("s3", openS3)
	objectstore.Register("gs", openGCS)
}

// answers implements objectstore.Bucket.Status.
type answers struct{}

// Status implements Bucket.
func (answers) Status(err error) (status int, code string) {
	var google *googleapi.Error
	var token *oauth2.RetrieveError
	var amazon *awshttp.ResponseError
	var api smithy.APIError
	switch {
	case errors.Is(err, objectstore.ErrAnswer):
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
