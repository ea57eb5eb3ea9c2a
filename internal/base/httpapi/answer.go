package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// JSON is the media type of bodies and answers.
const JSON = "application/json"

// Failure is the body of an answer that is not 2xx.
type Failure struct {
	Error string `json:"error"`
}

// Error is an answer that reports a failure. Its text is for the client: one sentence with the
// cure.
type Error struct {
	Status int
	// After is the pause before the same request may succeed; 0: repeating it does not help.
	After time.Duration
	// Bearer asks for a bearer token.
	Bearer bool
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Errorf returns an answer with a status, which repeating the request does not change.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Class gives the errors that Has accepts a status.
type Class struct {
	Status int
	Has    func(error) bool
}

// Is returns a predicate of errors that are one of targets.
func Is(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
}

// StatusOf returns the status of an error: its own if it is an Error, else the status of the first
// class that has it, else 502.
func StatusOf(err error, classes []Class) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	for _, c := range classes {
		if c.Has(err) {
			return c.Status
		}
	}
	return http.StatusBadGateway
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", JSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// Write answers with the error.
func (e *Error) Write(w http.ResponseWriter) {
	if e.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.After/time.Second)))
	}
	if e.Bearer {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	WriteJSON(w, e.Status, Failure{Error: e.Text})
}
