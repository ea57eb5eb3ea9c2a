// Package cloud is the drivers of object stores with the protocol S3 and of Google's object store.
// It registers them for s3:// and gs:// when it is imported.
package cloud

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

func init() {
	remote.RegisterStore("s3", openS3)
	remote.RegisterStore("gs", openGCS)
}

// openS3 opens a bucket of a store with the protocol S3. It makes no connection.
func openS3(
	name string, spec remote.StoreSpec, most int64, guard *access.Guard, secrets *access.Store,
) (remote.Bucket, error) {
	c, err := newClient(name, spec, most, guard, secrets)
	if err != nil {
		return nil, err
	}
	return objectstore.S3(c.s3, name, c.CloseIdleConnections)
}

// client sends every request through the guard, and refuses an answer of more than most bytes.
type client struct {
	*http.Client
	s3   *s3.Client
	most int64
}

// newClient returns a client that takes nothing from the environment, the files or the cloud of the
// agent. Without keys its requests are not signed. The library retries nothing, because the callers
// of Store do.
func newClient(
	bucket string, spec remote.StoreSpec, most int64, guard *access.Guard, secrets *access.Store,
) (*client, error) {
	region := spec.Region
	if region == "" {
		region = "us-east-1"
	}
	if strings.Trim(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(region) > 32 {
		return nil, fmt.Errorf("region %s: use small letters, digits and hyphens", fault.Quote(spec.Region))
	}
	if spec.Account != "" {
		return nil, errors.New("account is for gs://: leave it out, and name access_key and secret_key")
	}
	c := &client{Client: guard.Client(false), most: most}
	options := s3.Options{
		Region: region, HTTPClient: c, Credentials: aws.AnonymousCredentials{}, Retryer: aws.NopRetryer{},
		Logger:                     logging.Nop{},
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
		DisableLogOutputChecksumValidationSkipped: true,
	}
	first := "https://" + bucket + ".s3." + region + ".amazonaws.com/"
	if spec.Endpoint != "" {
		first = spec.Endpoint
		options.BaseEndpoint, options.UsePathStyle = aws.String(spec.Endpoint), true
	} else if strings.Contains(bucket, ".") { // no certificate holds such a host
		first = "https://s3." + region + ".amazonaws.com/"
		options.UsePathStyle = true
	}
	if err := remote.CheckURL(first, guard); err != nil {
		return nil, err
	}
	if (spec.AccessKey == "") != (spec.SecretKey == "") || spec.SessionToken != "" && spec.AccessKey == "" {
		return nil, errors.New(
			"access_key and secret_key go together, session_token with both: name secrets of the agent, or none for " +
				"a public bucket",
		)
	}
	if spec.AccessKey != "" {
		var values [3]string
		for i, ref := range []string{spec.AccessKey, spec.SecretKey, spec.SessionToken} {
			if ref == "" {
				continue
			}
			v, err := secrets.At(remote.HostOf(first)).Get(ref)
			if err != nil {
				return nil, err
			}
			values[i] = v.Reveal()
		}
		options.Credentials = credentials.NewStaticCredentialsProvider(values[0], values[1], values[2])
	}
	c.s3 = s3.New(options)
	return c, nil
}

// Do implements the HTTP client of the library. It refuses a list that is none, and bounds every
// body.
func (c *client) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	body := bufio.NewReader(remote.Cap(resp.Body, c.most))
	if resp.StatusCode == http.StatusOK && r.URL.Query().Get("list-type") != "" {
		// The library takes any other text for a list without objects.
		if head, _ := body.Peek(512); !bytes.Contains(head, []byte("<ListBucketResult")) {
			_ = resp.Body.Close()
			return nil, remote.ErrNoAnswer
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return resp, nil
}
