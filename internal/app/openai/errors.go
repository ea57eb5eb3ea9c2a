package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
)

// Failure is the body of an answer that is not 2xx.
type Failure struct {
	Error Fault `json:"error"`
}

// Fault is what is wrong.
type Fault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// CodeBusy is the code of a request whose conversation is being answered.
const CodeBusy = "conversation_busy"

// fault is an error with its answer.
type fault struct {
	status      int
	after       time.Duration
	param, code string
	text        string
}

// Error implements error.
func (f *fault) Error() string { return f.text }

func invalid(param, format string, args ...any) error {
	return &fault{status: http.StatusBadRequest, param: param, text: fmt.Sprintf(format, args...)}
}

func unsupported(param string) error {
	return &fault{
		status: http.StatusBadRequest, param: param, code: "unsupported_parameter",
		text: param + ": this server does not do that: leave it out",
	}
}

// faultOf returns the answer to an error.
func faultOf(err error) *fault {
	var f *fault
	var e *httpapi.Error
	var refused *jobs.Error
	var long *http.MaxBytesError
	of := func(status int, code string) *fault { return &fault{status: status, code: code, text: err.Error()} }
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &e) && e.Status == http.StatusUnauthorized:
		return of(e.Status, "invalid_api_key")
	case errors.As(err, &e):
		return of(e.Status, "")
	case errors.As(err, &long):
		return of(http.StatusRequestEntityTooLarge, "")
	case errors.Is(err, httpapi.ErrSlow):
		return of(http.StatusRequestTimeout, "")
	case errors.Is(err, generation.ErrTooLong):
		return of(http.StatusBadRequest, "context_length_exceeded")
	case errors.Is(err, generation.ErrBusy), errors.Is(err, generation.ErrTaken):
		return of(http.StatusConflict, CodeBusy)
	case errors.Is(err, generation.ErrResume):
		return of(http.StatusConflict, "stream_unknown")
	case errors.Is(err, generation.ErrFull), errors.Is(err, httpapi.ErrBusy):
		f := of(http.StatusTooManyRequests, "rate_limit_exceeded")
		f.after = time.Second
		return f
	case errors.As(err, &refused) && (refused.Code == jobs.CodeInvalid || refused.Code == jobs.CodeInput):
		return of(http.StatusBadRequest, "")
	case errors.Is(err, generation.ErrClosed), errors.Is(err, jobs.ErrUnavailable), errors.Is(err, context.Canceled):
		f := of(http.StatusServiceUnavailable, "")
		f.after = time.Second
		return f
	}
	return of(http.StatusInternalServerError, "")
}

// body returns the fault in OpenAI's form.
func (f *fault) body() Failure {
	b := Failure{Fault{Message: f.text, Type: "invalid_request_error"}}
	switch {
	case f.status == http.StatusTooManyRequests:
		b.Error.Type = "rate_limit_error"
	case f.status >= http.StatusInternalServerError:
		b.Error.Type = "server_error"
	}
	if f.param != "" {
		b.Error.Param = &f.param
	}
	if f.code != "" {
		b.Error.Code = &f.code
	}
	return b
}

// Fail answers a request with an error.
func Fail(w http.ResponseWriter, _ *http.Request, err error) {
	f := faultOf(err)
	if f.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.after/time.Second)))
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	httpapi.WriteJSON(w, f.status, f.body())
}
