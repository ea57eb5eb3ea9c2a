package cpuagents

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/internal/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// ObjectSpec says how to watch the objects at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. The zero value reads what there is, once, without credentials.
type ObjectSpec struct {
	// WatchSpec without Renamed: an object is complete when it is there.
	WatchSpec
	// Timeout bounds a page of the list, and an object, in seconds, 0.1 to 3,600; 0 means 60.
	Timeout float64 `json:"timeout_s,omitempty"`
	StoreSpec
}

// StoreSpec says where an object store is and who asks. The zero value is Amazon's or Google's own, without credentials.
type StoreSpec struct {
	// Endpoint is the URL of another store of the same protocol; the bucket is then in the path.
	Endpoint string `json:"endpoint,omitempty"`
	// Account is for gs:// and refers to a secret of the agent: the key of a service account, in JSON.
	Account string `json:"account,omitempty"`
	// Region and what follows are for s3://. It is us-east-1 when empty.
	Region string `json:"region,omitempty"`
	// AccessKey, SecretKey and SessionToken refer to secrets of the agent, both of the first or neither. The agent's own credentials
	// are not used.
	AccessKey    string `json:"access_key,omitempty"`
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
}

// isObject says whether a URI is that of objects of a store.
func isObject(uri string) bool {
	return strings.HasPrefix(uri, "s3://") || strings.HasPrefix(uri, "gs://")
}

// maxListBytes bounds a page of a list: a thousand objects with the longest keys are a fourth of it.
const maxListBytes = 16 << 20

// objects lists the objects of a bucket below a prefix, in the order of their keys.
type objects struct {
	where  string
	bucket *blob.Bucket
	prefix string
	wanted func(key string) bool
	time   time.Duration                             // of a page, and of an object
	tag    func(o *blob.ListObject) string           // the version of an object
	pin    func(as func(any) bool, tag string) error // lets that version alone be read; nil where the reader is compared
	status func(err error) (status int, code string) // what a store has answered that refuses; 0 for none
	idle   func()                                    // closes what is left of connections
}

// newObjectFetcher watches objects at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.
func newObjectFetcher(uri string, format rows.Format, spec *ObjectSpec, guard *egress.Guard, secrets *secret.Store) (*listFetcher, error) {
	where := withoutQuery(uri)
	bad := func(err error) error {
		return &jobs.Error{Code: jobs.CodeInvalid, Message: fmt.Sprintf("source %s: %v", where, err)}
	}
	if spec == nil {
		spec = &ObjectSpec{}
	}
	f, err := newListFetcher(where, format, &spec.WatchSpec)
	if err != nil {
		return nil, err
	}
	f.whole = true
	bounds, err := limits{Timeout: spec.Timeout}.withDefaults()
	if err != nil {
		return nil, bad(err)
	}
	if spec.Renamed {
		return nil, bad(errors.New("renamed: an object is complete when it is there: leave it out"))
	}
	src, err := openStore(where, uri, spec.StoreSpec, max(f.limits.MaxBytes, maxListBytes), guard, secrets)
	if err != nil {
		return nil, bad(err)
	}
	src.wanted, src.time = f.wanted, bounds.requestTimeout()
	f.src = src
	return f, nil
}

// openStore opens SCHEME://BUCKET/PREFIX, and connects to nothing yet. most bounds an answer in bytes.
func openStore(where, uri string, spec StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store) (*objects, error) {
	scheme, path, _ := strings.Cut(uri, "://")
	bucket, prefix, _ := strings.Cut(path, "/")
	more := ""
	if scheme == "gs" {
		more = "_" // Google's may have it
	}
	if len(bucket) < 3 || len(bucket) > 63 || strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-."+more) != "" || strings.Contains(bucket, "..") || strings.ContainsAny(prefix, "?#\x00") || len(prefix) > 1024 {
		return nil, fmt.Errorf("write %s://BUCKET/PREFIX, with a bucket of 3 to 63 small letters, digits, dots and hyphens", scheme)
	}
	if guard == nil {
		guard = &egress.Guard{}
	}
	if secrets == nil {
		secrets = &secret.Store{}
	}
	o := &objects{where: where, prefix: prefix}
	if scheme == "gs" {
		return o, o.openGCS(bucket, spec, most, guard, secrets)
	}
	return o, o.openS3(bucket, spec, most, guard, secrets)
}

// storeURL is the endpoint of a store, which the operator must allow.
func storeURL(text string, guard *egress.Guard) error {
	u, err := url.Parse(text)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return egress.ErrURL
	}
	return guard.Check(u)
}

// hostOf is the host of a URL that storeURL has let through.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// openS3 opens a bucket of a store that speaks S3.
func (o *objects) openS3(bucket string, spec StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store) error {
	client, err := newS3(bucket, spec, most, guard, secrets)
	if err != nil {
		return err
	}
	if o.bucket, err = s3blob.OpenBucket(context.Background(), client.s3, bucket, nil); err != nil {
		return err
	}
	o.idle = client.CloseIdleConnections
	o.tag = func(b *blob.ListObject) string {
		var s types.Object
		if b.As(&s) {
			return aws.ToString(s.ETag)
		}
		return ""
	}
	o.pin = func(as func(any) bool, tag string) error {
		var in *s3.GetObjectInput
		if as(&in) && tag != "" {
			in.IfMatch = aws.String(tag)
		}
		return nil
	}
	o.status = func(err error) (status int, code string) {
		var answer *awshttp.ResponseError
		var api smithy.APIError
		if errors.As(err, &answer) {
			status = answer.HTTPStatusCode()
		}
		if errors.As(err, &api) {
			code = api.ErrorCode()
		}
		return status, code
	}
	return nil
}

// s3Client makes requests that are all checked, and reads no answer that is longer than most bytes.
type s3Client struct {
	*http.Client
	s3   *s3.Client
	most int64
}

// newS3 makes a client that takes nothing from the agent's environment, files or cloud.
func newS3(bucket string, spec StoreSpec, most int64, guard *egress.Guard, secrets *secret.Store) (*s3Client, error) {
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
	c := &s3Client{Client: guard.Client(false), most: most}
	options := s3.Options{
		Region: region, HTTPClient: c, Credentials: aws.AnonymousCredentials{}, Retryer: aws.NopRetryer{}, Logger: logging.Nop{},
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported, DisableLogOutputChecksumValidationSkipped: true,
	}
	first := "https://" + bucket + ".s3." + region + ".amazonaws.com/"
	if spec.Endpoint != "" {
		first = spec.Endpoint
		options.BaseEndpoint, options.UsePathStyle = aws.String(spec.Endpoint), true
	} else if strings.Contains(bucket, ".") { // no certificate holds such a host
		first = "https://s3." + region + ".amazonaws.com/"
		options.UsePathStyle = true
	}
	if err := storeURL(first, guard); err != nil {
		return nil, err
	}
	if (spec.AccessKey == "") != (spec.SecretKey == "") || spec.SessionToken != "" && spec.AccessKey == "" {
		return nil, errors.New("access_key and secret_key go together, session_token with both: name secrets of the agent, or none for a public bucket")
	}
	if spec.AccessKey != "" {
		var values [3]string
		for i, ref := range []string{spec.AccessKey, spec.SecretKey, spec.SessionToken} {
			if ref == "" {
				continue
			}
			v, err := secrets.At(hostOf(first)).Get(ref)
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

// What is wrong with an answer.
var (
	errLong     = errors.New("its answer is too long")
	errNoAnswer = errors.New("its answer is not that of an object store")
)

// Do implements the library's HTTP client.
func (c *s3Client) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	body := bufio.NewReader(&capped{resp.Body, c.most})
	if resp.StatusCode == http.StatusOK && r.URL.Query().Get("list-type") != "" {
		// The library takes any other text for a list without objects.
		if head, _ := body.Peek(512); !bytes.Contains(head, []byte("<ListBucketResult")) {
			_ = resp.Body.Close()
			return nil, errNoAnswer
		}
	}
	resp.Body = limitedBody{body, resp.Body}
	return resp, nil
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// capped fails where a reader goes on behind left bytes.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p[:min(int64(len(p)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		return 0, errLong
	}
	return n, err
}

func (o *objects) Close() error {
	o.idle()
	return o.bucket.Close()
}

// list implements lister.
func (o *objects) list(ctx context.Context, most int) (list []listed, err error) {
	for token := blob.FirstPageToken; len(token) > 0 && len(list) <= most; {
		var page []*blob.ListObject
		if page, token, err = o.page(ctx, token, min(most+1-len(list), 1000)); err != nil {
			return nil, err
		}
		for _, b := range page {
			if b.IsDir || len(b.Key) > 1024 {
				continue
			}
			if n := len(list); n > 0 && b.Key <= list[n-1].name {
				return nil, fault.Input("%s: its list is not in the order of the keys", o.where)
			}
			list = append(list, listed{name: b.Key, size: b.Size, tag: o.tag(b), pass: !o.wanted(b.Key)})
		}
	}
	return list, nil
}

// page is a page of the list. What the library panics on, such as an object without a time, is an error of the store.
func (o *objects) page(ctx context.Context, token []byte, size int) (page []*blob.ListObject, next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("list %s: %v", o.where, errNoAnswer)
		}
	}()
	page, next, err = o.bucket.ListPage(ctx, token, size, &blob.ListOptions{Prefix: o.prefix})
	if err != nil {
		return nil, nil, o.class("list", o.where, err)
	}
	return page, next, nil
}

// copy implements lister.
func (o *objects) copy(ctx context.Context, l listed, doc *os.File) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("get %s: %v", o.where, errNoAnswer)
		}
	}()
	options := &blob.ReaderOptions{}
	if o.pin != nil {
		options.BeforeRead = func(as func(any) bool) error { return o.pin(as, l.tag) }
	}
	what := o.where + ": " + fault.Quote(l.name)
	r, err := o.bucket.NewReader(ctx, l.name, options)
	switch gcerrors.Code(err) {
	case gcerrors.OK:
	case gcerrors.NotFound:
		return unreadable{"it vanished before it was read"}
	case gcerrors.FailedPrecondition:
		return errChanged
	default:
		return o.class("get", what, err)
	}
	defer r.Close()
	n, err := io.Copy(files.ScratchWriter(doc), io.LimitReader(r, l.size+1))
	switch {
	case err != nil:
		var typed *jobs.Error
		if errors.As(err, &typed) {
			return err
		}
		return o.class("get", what, err)
	case n != l.size:
		return errChanged
	}
	return nil
}

// Put implements putter: an object is there whole or not at all.
func (o *objects) Put(ctx context.Context, name, mediaType string, data []byte) (err error) {
	key := name
	if o.prefix != "" {
		key = strings.TrimRight(o.prefix, "/") + "/" + name
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("put %s: %v", o.where, errNoAnswer)
		}
	}()
	if err := o.bucket.WriteAll(ctx, key, data, &blob.WriterOptions{ContentType: mediaType, DisableContentTypeDetection: true}); err != nil {
		return o.class("put", o.where+": "+fault.Quote(name), err)
	}
	return nil
}

// class says whether another try may help. What the store says of an error is cut short; its host may be in it, a secret is not.
func (o *objects) class(what, where string, err error) error {
	status, code := 0, ""
	if o.status != nil {
		status, code = o.status(err)
	}
	switch {
	case egress.Refused(err):
		return retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "%s %s: the store, or where it sends to, is not in --egress, or not a public address", what, where))
	case errors.Is(err, errLong), errors.Is(err, errNoAnswer):
		return retry.Permanent(fault.Input("%s %s: its answer is too long, or not that of an object store: check endpoint, max_bytes and prefix", what, where))
	case status >= 300:
		if code != "" {
			code = " " + fault.Quote(code)
		}
		switch {
		case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
			return jobs.Errorf(jobs.CodeIO, "%s %s: it answers %d%s", what, where, status, code)
		case status < 400:
			return retry.Permanent(fault.Input("%s %s: it answers %d%s: check region and endpoint", what, where, status, code))
		}
		return retry.Permanent(fault.Input("%s %s: it answers %d%s: check bucket, region, endpoint and keys", what, where, status, code))
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return jobs.Errorf(jobs.CodeIO, "%s %s: %v", what, where, err)
}
