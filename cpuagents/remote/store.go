package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// StoreSpec is the address of an object store, and the credentials. The zero value is the store of
// Amazon or Google, without credentials.
type StoreSpec struct {
	// Endpoint is the URL of another store of the same protocol; the bucket is then in the path.
	Endpoint string `json:"endpoint,omitempty"`
	// Account is for gs:// and refers to a secret of the agent: the key of a service account, in
	// JSON.
	Account string `json:"account,omitempty"`
	// Region and what follows are for s3://. It is us-east-1 when empty.
	Region string `json:"region,omitempty"`
	// AccessKey, SecretKey and SessionToken refer to secrets of the agent, both of the first or
	// neither. The agent's own credentials are not used.
	AccessKey    string `json:"access_key,omitempty"`
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
}

// IsObject reports whether a URI names objects of a store. It looks at the scheme alone.
func IsObject(uri string) bool {
	return strings.HasPrefix(uri, "s3://") || strings.HasPrefix(uri, "gs://")
}

// MaxListBytes bounds a page of a list. A thousand objects with the longest keys are a fourth of
// it.
const MaxListBytes = 16 << 20

// Store reads and writes the objects of a bucket below a prefix. Its methods may be called
// concurrently, except Close, which is the last call. Errors have a class, and retry.Permanent
// marks those that no further try repairs.
type Store struct {
	// Timeout bounds a page of a list, and an object that is read.
	Timeout time.Duration

	where  string // for messages
	bucket Bucket
	prefix string
}

// Bucket is one try at each call to a store, whose errors have no class yet. The buckets of package
// internal/base/objectstore implement it; their documentation is more exact.
type Bucket interface {
	Page(
		ctx context.Context, prefix, delimiter, token string, size int, add func(key string, size int64, tag string),
	) (next string, err error)
	Read(ctx context.Context, key, tag string) (io.ReadCloser, error)
	Put(ctx context.Context, key, mediaType string, data []byte) error
	Status(err error) (status int, code string)
	Close() error
}

// Object is an object of a store. Size is in bytes.
type Object struct {
	Key  string
	Size int64
	Tag  string // of the version: other contents have another tag
}

// NewStore returns the store of a bucket that is open, below a prefix. The parameter where names it
// in errors. The store owns the bucket.
func NewStore(where string, b Bucket, prefix string) *Store {
	return &Store{Timeout: 60 * time.Second, where: where, bucket: b, prefix: prefix}
}

// OpenStore opens the store at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. It makes no connection
// yet. The parameter most bounds an answer in bytes, and where names the store in errors. An error
// names the mistake in the specification, and has no class yet. It wraps ErrNoDriver if the program
// has no driver for the scheme. The caller closes the store.
func OpenStore(
	where, uri string, spec StoreSpec, most int64, guard *access.Guard, secrets *access.Store,
) (*Store, error) {
	scheme, path, _ := strings.Cut(uri, "://")
	name, prefix, _ := strings.Cut(path, "/")
	more := ""
	if scheme == "gs" {
		more = "_" // Google's may have it
	}
	if len(name) < 3 || len(name) > 63 ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-."+more) != "" ||
		strings.Contains(name, "..") ||
		strings.ContainsAny(prefix, "?#\x00") ||
		len(prefix) > 1024 {
		return nil, fmt.Errorf(
			"write %s://BUCKET/PREFIX, with a bucket of 3 to 63 small letters, digits, dots and hyphens",
			scheme,
		)
	}
	if guard == nil {
		guard = &access.Guard{}
	}
	if secrets == nil {
		secrets = &access.Store{}
	}
	open, err := storeDriver(scheme)
	if err != nil {
		return nil, err
	}
	b, err := open(name, spec, most, guard, secrets)
	if err != nil {
		return nil, err
	}
	return NewStore(where, b, prefix), nil
}

// CheckURL checks that the operator allows the endpoint of a store. A query or a fragment in an
// endpoint is refused.
func CheckURL(text string, guard *access.Guard) error {
	u, err := url.Parse(text)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return access.ErrURL
	}
	return guard.Check(u)
}

// HostOf returns the host of a URL that CheckURL accepted. It is the host to which credentials may
// be sent.
func HostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Errors of a store.
var (
	ErrGone     = errors.New("the object is not there any more")
	ErrChanged  = errors.New("the object is another version")
	ErrLong     = errors.New("its answer is too long")
	ErrNoAnswer = errors.New("its answer is not that of an object store")
)

// Cap returns a body that fails with ErrLong if it has more than most bytes. Closing it closes body.
func Cap(body io.ReadCloser, most int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{&capped{body, most}, body}
}

// capped fails if a reader has more than left bytes.
type capped struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader. It reads one byte beyond the bound to tell an answer of exactly that
// size from a longer one. The error is ErrLong, also for the bytes before the bound in the same
// call.
func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p[:min(int64(len(p)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		return 0, ErrLong
	}
	return n, err
}

// Close closes the bucket and its idle connections. No other call runs or follows.
func (o *Store) Close() error { return o.bucket.Close() }

// List returns up to most objects in the order of their keys, and one more if there are more. So a
// caller sees by the length that the list is cut. Keys of more than 1,024 bytes are left
// out. A list in another order is an error of the input, because positions in it would skip
// objects.
func (o *Store) List(ctx context.Context, most int) (list []Object, err error) {
	for token := ""; ; {
		var page []Object
		if page, token, err = o.page(ctx, token, min(most+1-len(list), 1000)); err != nil {
			return nil, err
		}
		for _, b := range page {
			if len(b.Key) > 1024 {
				continue
			}
			if n := len(list); n > 0 && b.Key <= list[n-1].Key {
				return nil, fault.Input("%s: its list is not in the order of the keys", o.where)
			}
			list = append(list, b)
		}
		if token == "" || len(list) > most {
			return list, nil
		}
	}
}

// page returns a page of the list and the token of the next one. The library panics on some
// answers, such as an object without a time; that is an error of the store. size is the most
// objects of the page. An empty next token means that the page is the last one.
func (o *Store) page(ctx context.Context, token string, size int) (page []Object, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("list %s: %v", o.where, ErrNoAnswer)
		}
	}()
	next, err = o.bucket.Page(ctx, o.prefix, "", token, size, func(key string, size int64, tag string) {
		page = append(page, Object{Key: key, Size: size, Tag: tag})
	})
	if err != nil {
		return nil, "", o.class("list", o.where, err)
	}
	return page, next, nil
}

// Read copies the contents of an object from List to doc. It returns ErrGone or ErrChanged if the
// object is missing or is another version; doc may have a part of the contents then, and after any
// other error.
func (o *Store) Read(ctx context.Context, l Object, doc io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("get %s: %v", o.where, ErrNoAnswer)
		}
	}()
	what := o.where + ": " + fault.Quote(l.Key)
	r, err := o.bucket.Read(ctx, l.Key, l.Tag)
	if err != nil {
		switch status, _ := o.bucket.Status(err); status {
		case http.StatusNotFound:
			return ErrGone
		case http.StatusPreconditionFailed:
			return ErrChanged
		}
		return o.class("get", what, err)
	}
	defer r.Close()
	n, err := io.Copy(doc, io.LimitReader(r, l.Size+1))
	switch {
	case err != nil:
		var typed *jobs.Error
		if errors.As(err, &typed) {
			return err
		}
		return o.class("get", what, err)
	case n != l.Size:
		return ErrChanged
	}
	return nil
}

// Put writes an object below the prefix. It replaces an object of that name, as a whole or not at
// all. The caller bounds its time with ctx. data is not kept.
func (o *Store) Put(ctx context.Context, name, mediaType string, data []byte) (err error) {
	key := name
	if o.prefix != "" {
		key = strings.TrimRight(o.prefix, "/") + "/" + name
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault.Input("put %s: %v", o.where, ErrNoAnswer)
		}
	}()
	if err := o.bucket.Put(ctx, key, mediaType, data); err != nil {
		return o.class("put", o.where+": "+fault.Quote(name), err)
	}
	return nil
}

// class gives an error its class, and marks with retry.Permanent what no further try repairs. The
// message of the store is cut; it may have the host, and never a secret. A refusal of the guard is
// jobs.CodeInvalid, an answer that a repetition does not change jobs.CodeInput, and all others
// jobs.CodeIO.
func (o *Store) class(what, where string, err error) error {
	status, code := o.bucket.Status(err)
	switch {
	case access.Refused(err):
		return retry.Permanent(
			jobs.Errorf(
				jobs.CodeInvalid, "%s %s: the store, or where it sends to, is not in --egress, or not a public address",
				what, where,
			),
		)
	case errors.Is(err, ErrLong), errors.Is(err, ErrNoAnswer), status == http.StatusOK:
		return retry.Permanent(
			fault.Input(
				"%s %s: its answer is too long, or not that of an object store: check endpoint, max_bytes and prefix",
				what, where,
			),
		)
	case status >= 300:
		if code != "" {
			code = " " + fault.Quote(code)
		}
		switch {
		case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
			return jobs.Errorf(jobs.CodeIO, "%s %s: it answers %d%s", what, where, status, code)
		case status < 400:
			return retry.Permanent(
				fault.Input("%s %s: it answers %d%s: check region and endpoint", what, where, status, code),
			)
		}
		return retry.Permanent(
			fault.Input("%s %s: it answers %d%s: check bucket, region, endpoint and keys", what, where, status, code),
		)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return jobs.Errorf(jobs.CodeIO, "%s %s: %v", what, where, err)
}
