package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// HTTPSpec says how a source at http:// or https:// is polled. The zero value fetches it once.
type HTTPSpec struct {
	// Headers of every request. {env:NAME} and {file:NAME} in a value stand for secrets of the
	// agent.
	Headers map[string]string `json:"headers,omitempty"`
	// Polls is the number of polls in all, 1 to 1,000,000; 0 means 1.
	Polls int `json:"polls,omitempty"`
	// Every is the seconds between the starts of two polls, 0.1 to 86,400; 0 means 60.
	Every float64 `json:"every_s,omitempty"`
	// CursorParam is the parameter of the query that names the first row that is wanted. CursorFrom
	// is its value: "timestamp" is the timestamp of the last row as written, and "header:NAME" is a
	// header of the last answer that had it. With a header, the next page is requested at once
	// while the value changes. CursorFrom "link" needs no parameter: it follows Link: <URL>;
	// rel="next".
	CursorParam string `json:"cursor_param,omitempty"`
	CursorFrom  string `json:"cursor_from,omitempty"`
	// MaxBytes bounds a document, 1 to 1 GiB; 0 means 64 MiB.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Timeout bounds a request with its answer, in seconds, 0.1 to 3,600; 0 means 60.
	Timeout float64 `json:"timeout_s,omitempty"`
	// Rate bounds the requests a second, 0.001 to 1,000; 0 means 5.
	Rate float64 `json:"rate,omitempty"`
	// Tries of a request, 1 to 20; 0 means 5. Backoff is the seconds before the second, which
	// double, with jitter, 0.001 to 60; 0 means 0.5.
	Tries   int     `json:"tries,omitempty"`
	Backoff float64 `json:"backoff_s,omitempty"`
}

func (s HTTPSpec) limits() remote.Limits {
	return remote.Limits{
		Polls:    s.Polls,
		Every:    s.Every,
		MaxBytes: s.MaxBytes,
		Timeout:  s.Timeout,
		Rate:     s.Rate,
		Tries:    s.Tries,
		Backoff:  s.Backoff,
	}
}

// check returns the limits with their defaults, and an error that joins all faults of the
// specification.
func (s HTTPSpec) check() (remote.Limits, error) {
	l, err := s.limits().WithDefaults()
	errs := []error{err}
	header, isHeader := strings.CutPrefix(s.CursorFrom, "header:")
	switch {
	case s.CursorFrom == "" && s.CursorParam == "", s.CursorFrom == "link" && s.CursorParam == "":
	case s.CursorFrom == "timestamp" && s.CursorParam != "", isHeader && header != "" && s.CursorParam != "":
	default:
		errs = append(errs, fmt.Errorf(
			"cursor_param %q with cursor_from %q: use a parameter with timestamp or header:NAME, or link without one",
			s.CursorParam, s.CursorFrom,
		))
	}
	return l, errors.Join(append(errs, remote.CheckHeaders(s.Headers))...)
}

type httpState struct {
	// ETag and Modified are followed by the URL that they belong to, since every page has its own.
	Polls    int    `json:"polls"`          // begun
	More     bool   `json:"more,omitempty"` // the poll has another page
	Next     string `json:"next,omitempty"` // the page, with "link"
	Cursor   string `json:"cursor,omitempty"`
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// httpFetcher polls a URL, with a cursor or links if the specification says so. Its redirects carry
// no headers to another host.
type httpFetcher struct {
	passive
	poller
	url     *url.URL
	format  rows.Format // of the source; empty to take it from the answer
	spec    HTTPSpec
	client  *http.Client
	secrets *access.Store
	limit   *rate.Limiter
}

// newHTTPFetcher returns the fetcher of a URL that the guard allows. It makes no connection yet. A
// mistake in the specification is an error of class jobs.CodeInvalid.
func newHTTPFetcher(
	uri string, format rows.Format, spec *HTTPSpec, guard *access.Guard, secrets *access.Store,
) (*httpFetcher, error) {
	bad := badSource(remote.WithoutQuery(uri))
	u, err := url.Parse(uri)
	if err != nil {
		return nil, bad("%v", access.ErrURL)
	}
	if err := guard.Check(u); err != nil {
		return nil, bad("%v", err)
	}
	if spec == nil {
		spec = &HTTPSpec{}
	}
	l, err := spec.check()
	if err != nil {
		return nil, bad("%v", err)
	}
	var names []string
	for n := range spec.Headers {
		names = append(names, n)
	}
	return &httpFetcher{
		url:     u,
		format:  format,
		spec:    *spec,
		poller:  poller{limits: l},
		client:  guard.Client(true, names...),
		secrets: secrets,
		limit:   rate.NewLimiter(rate.Limit(l.Rate), 1),
	}, nil
}

func (f *httpFetcher) close() error {
	f.client.CloseIdleConnections()
	return nil
}

// fetch implements fetcher. A failed try leaves the state as before it, so the next try asks for
// the same page. A poll without news is no document: fetch continues with the next poll.
func (f *httpFetcher) fetch(ctx context.Context, at position, last string, doc *os.File) (position, error) {
	var st httpState
	if err := at.decode(f.where(), &st); err != nil {
		return position{}, err
	}
	for {
		if !st.More {
			if more, err := f.begin(ctx, &st.Polls); err != nil {
				return position{}, err
			} else if !more {
				return f.position(st, "")
			}
			st.Next = ""
		}
		var format rows.Format
		// once changes the state while it works; each try begins with the same one.
		before := st
		err := f.limits.Retry().Do(ctx, func() (time.Duration, error) {
			if err := files.Rewind(doc); err != nil {
				return 0, retry.Permanent(err)
			}
			if err := f.limit.Wait(ctx); err != nil {
				return 0, err
			}
			st = before
			var after time.Duration
			var err error
			format, after, err = f.once(ctx, &st, last, doc)
			return after, err
		})
		if err != nil {
			return position{}, err
		}
		// Without a document the loop continues with the next poll, unless this was the last.
		if format != "" || st.Polls == f.limits.Polls && !st.More {
			return f.position(st, format)
		}
	}
}

// position returns the position with a state. An empty format means that there is no document.
func (f *httpFetcher) position(st httpState, format rows.Format) (position, error) {
	return position{Format: format, Done: !st.More && st.Polls == f.limits.Polls}.with(f.where(), st)
}

func (f *httpFetcher) where() string { return remote.WithoutQuery(f.url.String()) }

// target returns the URL of the next request: the next page if there is one, else the URL of the
// source with the cursor.
func (f *httpFetcher) target(st *httpState, last string) (*url.URL, error) {
	u := *f.url
	if st.Next != "" {
		next, err := f.url.Parse(st.Next)
		if err != nil {
			return nil, access.ErrURL
		}
		return next, nil
	}
	if f.spec.CursorFrom == "timestamp" {
		st.Cursor = last
	}
	if f.spec.CursorParam != "" && st.Cursor != "" {
		q := u.Query()
		q.Set(f.spec.CursorParam, st.Cursor)
		u.RawQuery = q.Encode()
	}
	return &u, nil
}

// once sends one request. It returns the format of the document, which is empty if there is nothing
// new. With an error, after is the least pause before the next try.
func (f *httpFetcher) once(
	ctx context.Context, st *httpState, last string, doc *os.File,
) (format rows.Format, after time.Duration, err error) {
	where := f.where()
	u, err := f.target(st, last)
	if err != nil {
		return "", 0, retry.Permanent(access.InputError("%s: the link to the next page: %v", where, err))
	}
	ctx, cancel := context.WithTimeout(ctx, f.limits.RequestTimeout())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "source %s: %v", where, access.ErrURL))
	}
	sent := u.String() // tags are of a page
	req.Header.Set("User-Agent", "exoswarm")
	// A link may lead to another host, which must not see the secrets in the headers.
	sameHost := u.Host == f.url.Host && u.Scheme == f.url.Scheme
	if err := remote.SetHeaders(req, f.spec.Headers, f.secrets, sameHost); err != nil {
		return "", 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "source %s: %v", where, err))
	}
	if tag, of, _ := strings.Cut(st.ETag, " "); tag != "" && of == sent {
		req.Header.Set("If-None-Match", tag)
	}
	if at, of, ok := strings.Cut(st.Modified, "|"); ok && of == sent {
		req.Header.Set("If-Modified-Since", at)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return "", 0, remote.RequestError("get", where, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified, resp.StatusCode == http.StatusNoContent:
		st.More = false
		return "", 0, nil
	case resp.StatusCode != http.StatusOK:
		after, err := remote.StatusError("get", where, resp)
		return "", after, err
	}
	if format, err = f.formatOf(resp); err != nil {
		return "", 0, retry.Permanent(err)
	}
	// One byte more than allowed is read, to tell an answer that fits from one that does not.
	n, err := io.Copy(files.ScratchWriter(doc), io.LimitReader(resp.Body, f.limits.MaxBytes+1))
	if err != nil {
		var typed *jobs.Error
		if errors.As(err, &typed) {
			return "", 0, retry.Permanent(err)
		}
		return "", 0, remote.RequestError("get", where, err)
	}
	if n > f.limits.MaxBytes {
		return "", 0, retry.Permanent(access.InputError(
			"%s: its answer is longer than %d bytes: raise max_bytes or ask for less at a time", where,
			f.limits.MaxBytes,
		))
	}
	st.ETag, st.Modified = "", ""
	if tag := resp.Header.Get("ETag"); tag != "" && len(tag) < 1024 && !strings.Contains(tag, " ") {
		st.ETag = tag + " " + sent
	}
	if at := resp.Header.Get("Last-Modified"); at != "" && len(at) < 64 {
		st.Modified = at + "|" + sent
	}
	return format, 0, f.turn(st, resp)
}

// turn takes the cursor or the link of the next page from an answer. The same cursor or link as
// before means that there is no further page, so a server that repeats itself cannot cause an
// endless loop.
func (f *httpFetcher) turn(st *httpState, resp *http.Response) error {
	st.More = false
	if name, ok := strings.CutPrefix(f.spec.CursorFrom, "header:"); ok {
		if c := resp.Header.Get(name); c != "" && c != st.Cursor {
			if len(c) > 4096 {
				return retry.Permanent(
					access.InputError("%s: its cursor has %d bytes; 4096 are allowed", f.where(), len(c)),
				)
			}
			st.Cursor, st.More = c, true
		}
	}
	if f.spec.CursorFrom == "link" {
		if next := nextLink(resp.Header.Values("Link")); next != "" && len(next) <= 4096 {
			u, err := resp.Request.URL.Parse(next)
			if err != nil {
				return retry.Permanent(
					access.InputError("%s: the link to the next page: %v", f.where(), access.ErrURL),
				)
			}
			if s := u.String(); s != st.Next {
				st.Next, st.More = s, true
			}
		}
	}
	return nil
}

// nextLink returns the URL of <URL>; rel="next" (RFC 8288); empty if there is none. values are the
// Link headers of an answer, each with one or more links. A damaged header ends the search in it.
func nextLink(values []string) string {
	for _, v := range values {
		for v != "" {
			_, rest, ok := strings.Cut(v, "<")
			if !ok {
				break
			}
			target, params, ok := strings.Cut(rest, ">")
			if !ok {
				break
			}
			mine, more, _ := strings.Cut(params, "<")
			for p := range strings.SplitSeq(mine, ";") {
				key, value, _ := strings.Cut(strings.Trim(p, " ,\t"), "=")
				if strings.EqualFold(key, "rel") && slices.Contains(strings.Fields(strings.Trim(value, `"`)), "next") {
					return target
				}
			}
			if v = ""; more != "" {
				v = "<" + more
			}
		}
	}
	return ""
}

// formatOf returns the format of an answer, by the source, the media type, or the extension of the
// path. A coding of the answer adds a packing to the format, unless the format has one.
func (f *httpFetcher) formatOf(resp *http.Response) (rows.Format, error) {
	format := f.format
	if format == "" {
		media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if format = rows.FormatOfMedia(media); format == "" {
			format, _ = rows.FormatOf(f.url.Path, "csv")
		}
	}
	switch coding := strings.ToLower(resp.Header.Get("Content-Encoding")); coding {
	case "", "identity":
	case "gzip", "zstd":
		if !strings.Contains(string(format), ".") {
			format += map[string]rows.Format{"gzip": ".gz", "zstd": ".zst"}[coding]
		}
	default:
		return "", access.InputError(
			"%s: its answer is coded as %s, which was not asked for", f.where(),
			access.Quote(coding),
		)
	}
	return format, format.Check()
}
