package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// CheckHeaders returns an error that joins all names of headers that a job may not set; nil if
// there is none. The values are not checked here, because they may refer to secrets.
func CheckHeaders(headers map[string]string) error {
	var errs []error
	for name := range headers {
		if !validHeader(name) {
			errs = append(errs, fmt.Errorf("headers: %q is no name of a header that a source may set", name))
		}
	}
	return errors.Join(errs...)
}

// validHeader reports whether a job may set a header. The headers that frame a message belong to
// the client. A name has letters, digits, hyphens and underscores.
func validHeader(name string) bool {
	for _, r := range name {
		if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	framing := []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding", "Te", "Trailer", "Upgrade",
	}
	return name != "" && !slices.Contains(framing, http.CanonicalHeaderKey(name))
}

// WithoutQuery returns a URI for messages: without user, query and fragment, which may have a
// secret. A URI that cannot be parsed is cut at the same characters.
func WithoutQuery(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	uri, _, _ = strings.Cut(uri, "#")
	if scheme, rest, ok := strings.Cut(uri, "://"); ok {
		host, path, slash := strings.Cut(rest, "/")
		if i := strings.LastIndexByte(host, '@'); i >= 0 {
			host = host[i+1:]
		}
		uri = scheme + "://" + host
		if slash {
			uri += "/" + path
		}
	}
	return uri
}

// SetHeaders sets the headers of a request, with the secrets to which they refer. sameHost reports
// whether the request goes to the host for which they were written; else it sets none, so that a
// redirect carries no secret away. A nil store reads the secrets of the environment.
func SetHeaders(req *http.Request, headers map[string]string, secrets *access.Store, sameHost bool) error {
	for name, text := range headers {
		if !sameHost {
			continue
		}
		v, _, err := secrets.At(req.URL.Hostname()).Expand(text)
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
		if strings.ContainsAny(v.Reveal(), "\r\n\x00") {
			return fmt.Errorf("header %s: its value has a line end in it", name)
		}
		req.Header.Set(name, v.Reveal())
	}
	return nil
}

// Post makes a request of a client, and returns the least pause that the destination asks for. A
// status of 2xx is a success. where is the result of WithoutQuery.
func Post(client *http.Client, req *http.Request, where string) (after time.Duration, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, RequestError("post to", where, err)
	}
	defer resp.Body.Close()
	// The rest of the answer is read so that the connection can be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 == 2 {
		return 0, nil
	}
	return StatusError("post to", where, resp)
}

// RequestError returns the failure of a request with a class: jobs.CodeInvalid and permanent for a
// refusal of the guard, jobs.CodeIO for any other. The message leaves out the URL, since the
// library adds the query to it. The parameter what is a verb ("get"), and where is the result of
// WithoutQuery.
func RequestError(what, where string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if access.Refused(err) {
		return retry.Permanent(&jobs.Error{Code: jobs.CodeInvalid, Message: fmt.Sprintf("%s %s: %v", what, where, err)})
	}
	return jobs.Errorf(jobs.CodeIO, "%s %s: %v", what, where, err)
}

// StatusError returns the error of an answer that is not a success, and the least pause that its
// server asks for. Statuses 408, 425, 429 and 5xx are jobs.CodeIO and may be tried again; all
// others are permanent. It does not read or close the body.
func StatusError(what, where string, resp *http.Response) (after time.Duration, err error) {
	if s, perr := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 20); perr == nil {
		after = time.Duration(s) * time.Second
	}
	switch c := resp.StatusCode; {
	case c == http.StatusRequestTimeout, c == http.StatusTooEarly, c == http.StatusTooManyRequests, c >= 500:
		return after, jobs.Errorf(jobs.CodeIO, "%s %s: it answers %d %s", what, where, c, http.StatusText(c))
	case c >= 300 && c < 400:
		return 0, retry.Permanent(access.InputError("%s %s: %d: %v", what, where, c, access.ErrRedirect))
	default:
		return 0, retry.Permanent(access.InputError(
			"%s %s: it answers %d %s: check the address and what it asks of its callers", what, where, c,
			http.StatusText(c),
		))
	}
}
