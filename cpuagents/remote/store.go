package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
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

// IsObject reports whether a URI names objects of a store. Only the scheme counts.
func IsObject(uri string) bool {
	return strings.HasPrefix(uri, "s3://") || strings.HasPrefix(uri, "gs://")
}

// MaxListBytes bounds a page of a list. A thousand objects with the longest keys are a fourth of
// it.
const MaxListBytes = 16 << 20

// Store reads and writes the objects of a bucket below a prefix. Its methods may be called
// concurrently, except Close, which is the last call. Errors have a class, and retry.Permanent
// marks errors that no further try repairs.
type Store struct {
	// Timeout bounds a page of a list, and an object that is read.
	Timeout time.Duration

	where  string // for messages
	bucket objectstore.Bucket
	prefix string
}

// Object is an object of a store. Size is in bytes.
type Object struct {
	Key  string
	Size int64
	Tag  string // of the version: other contents have another tag
}

// NewStore returns the store of a bucket that is open, below a prefix. The parameter where names it
// in errors. The store owns the bucket.
func NewStore(where string, b objectstore.Bucket, prefix string) *Store {
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
	client := guard.Client(false)
	client.Transport = bounded{client.Transport, most}
	o := objectstore.Options{
		Bucket: name, Client: client, Endpoint: spec.Endpoint,
		TokenURL: func(address string) error { return CheckURL(address, guard) },
	}
	login := s3Login
	if scheme == "gs" {
		login = gcsLogin
	}
	if err := login(&o, spec, guard, secrets); err != nil {
		return nil, err
	}
	b, err := objectstore.Open(context.Background(), scheme, o)
	switch {
	case errors.Is(err, objectstore.ErrAccount):
		return nil, errors.New("account: use the key of a service account, in JSON, whose token_uri is in --egress " +
			"(oauth2.googleapis.com)")
	case err != nil:
		return nil, err
	}
	return NewStore(where, b, prefix), nil
}

// s3Login adds the region and the keys of a store with the protocol S3. Without keys its requests
// are not signed.
func s3Login(o *objectstore.Options, spec StoreSpec, guard *access.Guard, secrets *access.Store) error {
	o.Region = cmp.Or(spec.Region, "us-east-1")
	if strings.Trim(o.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(o.Region) > 32 {
		return fmt.Errorf("region %s: use small letters, digits and hyphens", access.Quote(spec.Region))
	}
	if spec.Account != "" {
		return errors.New("account is for gs://: leave it out, and name access_key and secret_key")
	}
	first := "https://" + o.Bucket + ".s3." + o.Region + ".amazonaws.com/"
	if spec.Endpoint != "" {
		first = spec.Endpoint
	} else if strings.Contains(o.Bucket, ".") { // no certificate holds such a host
		first = "https://s3." + o.Region + ".amazonaws.com/"
	}
	if err := CheckURL(first, guard); err != nil {
		return err
	}
	if (spec.AccessKey == "") != (spec.SecretKey == "") || spec.SessionToken != "" && spec.AccessKey == "" {
		return errors.New(
			"access_key and secret_key go together, session_token with both: name secrets of the agent, " +
				"or none for a public bucket",
		)
	}
	for _, s := range []struct {
		to  *string
		ref string
	}{{&o.AccessKey, spec.AccessKey}, {&o.SecretKey, spec.SecretKey}, {&o.SessionToken, spec.SessionToken}} {
		if s.ref == "" {
			continue
		}
		v, err := secrets.At(HostOf(first)).Get(s.ref)
		if err != nil {
			return err
		}
		*s.to = v.Reveal()
	}
	return nil
}

// gcsLogin adds the account of Google's store, or of a store with the same protocol.
func gcsLogin(o *objectstore.Options, spec StoreSpec, guard *access.Guard, secrets *access.Store) error {
	if spec.Region != "" || spec.AccessKey != "" || spec.SecretKey != "" || spec.SessionToken != "" {
		return errors.New(
			"region, access_key, secret_key and session_token are for s3://: leave them out, and name the " +
				"key of a service account (account)",
		)
	}
	o.Endpoint = cmp.Or(strings.TrimRight(spec.Endpoint, "/"), "https://storage.googleapis.com")
	if err := CheckURL(o.Endpoint+"/", guard); err != nil || spec.Account == "" {
		return err
	}
	v, err := secrets.At(HostOf(o.Endpoint)).Get(spec.Account)
	if err != nil {
		return err
	}
	o.Account = []byte(v.Reveal())
	return nil
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
	ErrNoAnswer = objectstore.ErrAnswer
)

// bounded refuses an answer whose body has more than most bytes. Reading beyond it is ErrLong.
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
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&capped{resp.Body, b.most}, resp.Body}
	return resp, nil
}

// CloseIdleConnections lets http.Client close the idle connections.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
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
				return nil, access.InputError("%s: its list is not in the order of the keys", o.where)
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
			err = access.InputError("list %s: %v", o.where, ErrNoAnswer)
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
			err = access.InputError("get %s: %v", o.where, ErrNoAnswer)
		}
	}()
	what := o.where + ": " + access.Quote(l.Key)
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
			err = access.InputError("put %s: %v", o.where, ErrNoAnswer)
		}
	}()
	if err := o.bucket.Put(ctx, key, mediaType, data); err != nil {
		return o.class("put", o.where+": "+access.Quote(name), err)
	}
	return nil
}

// class gives an error its class, and marks with retry.Permanent what no further try repairs. The
// message of the store is cut; it may have the host, and never a secret. A refusal of the guard is
// jobs.CodeInvalid, an answer that a repetition does not change jobs.CodeInput, and any other
// failure jobs.CodeIO.
func (o *Store) class(what, where string, err error) error {
	status, code := o.bucket.Status(err)
	switch {
	case access.Refused(err):
		return retry.Permanent(jobs.Errorf(
			jobs.CodeInvalid, "%s %s: the store, or where it sends to, is not in --egress, or not a public address",
			what, where,
		))
	case errors.Is(err, ErrLong), errors.Is(err, ErrNoAnswer), status == http.StatusOK:
		return retry.Permanent(access.InputError(
			"%s %s: its answer is too long, or not the answer of an object store: check endpoint, max_bytes and prefix",
			what, where,
		))
	case status >= 300:
		if code != "" {
			code = " " + access.Quote(code)
		}
		switch {
		case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
			return jobs.Errorf(jobs.CodeIO, "%s %s: it answers %d%s", what, where, status, code)
		case status < 400:
			return retry.Permanent(
				access.InputError("%s %s: it answers %d%s: check region and endpoint", what, where, status, code),
			)
		}
		return retry.Permanent(
			access.InputError(
				"%s %s: it answers %d%s: check bucket, region, endpoint and keys",
				what,
				where,
				status,
				code,
			),
		)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return jobs.Errorf(jobs.CodeIO, "%s %s: %v", what, where, err)
}
