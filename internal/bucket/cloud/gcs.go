package cloud

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/bucket"
	"github.com/exoswarm/exoswarm/internal/retry"
)

func init() { bucket.Register("gs", openGCS) }

// google is a bucket of Google's store, or of a store with the same JSON API. It uses the generated
// client of that API: the library above it contains gRPC, its metrics and their exporters, 7 MB of
// each program. Methods are safe for concurrent use.
type google struct {
	objects *storage.ObjectsService
	bucket  string
	prefix  string // of all names: empty, or it ends in a slash
}

// openGCS opens a bucket of Google's store. The login is that of the environment (application
// default credentials), unless the query has anonymous=true. Nothing is sent before the first call.
func openGCS(ctx context.Context, u *url.URL, prefix string) (bucket.Bucket, error) {
	options := []option.ClientOption{option.WithScopes(storage.DevstorageReadWriteScope)}
	for k, v := range u.Query() {
		switch {
		case k == "endpoint":
			e, err := url.Parse(v[0])
			if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.RawQuery != "" {
				return nil, fmt.Errorf("endpoint %q: write the URL of a store", v[0])
			}
			options = append(options, option.WithEndpoint(strings.TrimRight(v[0], "/")+"/storage/v1/"))
		case k == "anonymous" && v[0] == "true":
			options = append(options, option.WithoutAuthentication())
		default:
			return nil, fmt.Errorf("unknown query parameter %s=%s: use endpoint=URL and anonymous=true", k, v[0])
		}
	}
	s, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, err
	}
	return google{s.Objects, u.Host, prefix}, nil
}

// Create implements snapshot.Store. The store makes the object when the last part is there, so that
// an upload that is given up leaves nothing to see.
func (g google) Create(ctx context.Context, name string) (snapshot.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	u := &googleUpload{to: to, sum: crc32.New(castagnoli), cancel: cancel, done: make(chan struct{})}
	call := g.objects.Insert(g.bucket, &storage.Object{Name: g.prefix + name}).Context(ctx)
	go func() {
		defer close(u.done)
		// Media reads the first part, so it is called here. WithRetry without values has the defaults.
		u.made, u.err = call.Media(from, googleapi.ContentType("application/octet-stream")).WithRetry(nil, nil).Do()
		// A writer that still waits learns why nobody reads.
		_ = from.CloseWithError(errors.Join(errUploadEnded, u.err))
	}()
	return u, nil
}

var (
	castagnoli     = crc32.MakeTable(crc32.Castagnoli)
	errUploadEnded = errors.New("the upload has ended")
	errAborted     = errors.New("the upload was given up")
)

// googleUpload is an object on its way. One goroutine calls its methods. made and err are valid when
// done is closed.
type googleUpload struct {
	to     *io.PipeWriter
	sum    hash.Hash32
	cancel context.CancelFunc
	ended  bool

	done chan struct{}
	made *storage.Object
	err  error
}

// Write implements snapshot.Object.
func (u *googleUpload) Write(p []byte) (int, error) {
	n, err := u.to.Write(p)
	_, _ = u.sum.Write(p[:n]) // a hash never fails
	return n, err
}

// Commit implements snapshot.Object. It fails if the store has other bytes than were written.
func (u *googleUpload) Commit() error {
	if u.ended {
		return errUploadEnded
	}
	u.ended = true
	defer u.cancel()
	_ = u.to.Close() // of a pipe: always nil
	<-u.done
	if u.err != nil {
		return u.err
	}
	want := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, u.sum.Sum32()))
	if u.made.Crc32c != "" && u.made.Crc32c != want {
		return fmt.Errorf("%s: the store has checksum %s, the bytes sent have %s: write it again", u.made.Name,
			u.made.Crc32c, want)
	}
	return nil
}

// Abort implements snapshot.Object: an upload whose input fails is given up.
func (u *googleUpload) Abort() {
	if u.ended {
		return
	}
	u.ended = true
	_ = u.to.CloseWithError(errAborted)
	u.cancel()
	<-u.done
}

// Open implements snapshot.Store.
func (g google) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	var answer *http.Response
	err := again(ctx, func() (err error) {
		//nolint:bodyclose // the caller of Open closes it
		answer, err = g.objects.Get(g.bucket, g.prefix+name).Context(ctx).Download()
		return err
	})
	var e *googleapi.Error
	if errors.As(err, &e) && e.Code == http.StatusNotFound {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return answer.Body, nil
}

// Sweep implements snapshot.Store: there is nothing to see of unfinished uploads.
func (g google) Sweep(context.Context, string) error { return nil }

// Folders implements snapshot.Store.
func (g google) Folders(ctx context.Context) (all []string, err error) {
	list := g.objects.List(g.bucket).Delimiter("/").Prefix(g.prefix).Context(ctx)
	for {
		var page *storage.Objects
		if err := again(ctx, func() (err error) { page, err = list.Do(); return err }); err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		for _, p := range page.Prefixes {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(p, g.prefix), "/"))
		}
		if page.NextPageToken == "" {
			return all, nil
		}
		list.PageToken(page.NextPageToken)
	}
}

// Names implements bucket.Bucket.
func (g google) Names(ctx context.Context, folder string) (all []string, err error) {
	list := g.objects.List(g.bucket).Prefix(g.prefix + folder + "/").Context(ctx)
	for {
		var page *storage.Objects
		if err := again(ctx, func() (err error) { page, err = list.Do(); return err }); err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		for _, o := range page.Items {
			all = append(all, strings.TrimPrefix(o.Name, g.prefix+folder+"/"))
		}
		if page.NextPageToken == "" {
			return all, nil
		}
		list.PageToken(page.NextPageToken)
	}
}

// Drop implements bucket.Bucket.
func (g google) Drop(ctx context.Context, name string) error {
	err := again(ctx, func() error { return g.objects.Delete(g.bucket, g.prefix+name).Context(ctx).Do() })
	var e *googleapi.Error
	if err != nil && (!errors.As(err, &e) || e.Code != http.StatusNotFound) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Remove implements bucket.Bucket.
func (g google) Remove(ctx context.Context, name string) error {
	if err := g.Drop(ctx, name+"/"+snapshot.ManifestName); err != nil {
		return err
	}
	for {
		list := g.objects.List(g.bucket).Prefix(g.prefix + name + "/").Context(ctx)
		var page *storage.Objects
		if err := again(ctx, func() (err error) { page, err = list.Do(); return err }); err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		if len(page.Items) == 0 {
			return nil
		}
		for _, o := range page.Items {
			if err := g.Drop(ctx, strings.TrimPrefix(o.Name, g.prefix)); err != nil {
				return err
			}
		}
	}
}

// again calls once up to five times, until it succeeds or fails with an answer that no repetition
// changes. The answers that it repeats are those that Google's documents name: 408, 429 and 5xx.
func again(ctx context.Context, once func() error) error {
	return retry.Policy{Tries: 5, Base: 200 * time.Millisecond}.Do(ctx, func() (time.Duration, error) {
		err := once()
		var e *googleapi.Error
		if errors.As(err, &e) && e.Code < 500 && e.Code != http.StatusRequestTimeout &&
			e.Code != http.StatusTooManyRequests {
			err = retry.Permanent(err)
		}
		return 0, err
	})
}

// Close implements bucket.Bucket. Connections of the client end by themselves when they are idle.
func (g google) Close() error { return nil }
