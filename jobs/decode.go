package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of a message that is a job, a result or a batch's metadata.
const (
	// MaxMessage is the largest message in bytes: the limit of a NATS server as it comes.
	MaxMessage = 1 << 20
	// MaxInline is the largest spec in bytes that travels inside its job; a larger one goes through
	// the object store. Half a message leaves room for the rest of the job and for its dead
	// letter's headers.
	MaxInline = 512 << 10
	// MaxDepth is how deep JSON may be nested. The deepest message of the protocol has 6 levels
	// above a spec.
	MaxDepth = 64
	// MaxBatch is the largest number of jobs that are submitted as one: the server's limit of an
	// atomic batch.
	MaxBatch = 1000
)

// CheckJSON returns an error unless data is one JSON value of at most MaxMessage bytes and MaxDepth
// levels. It reads every byte once and allocates nothing, so a stranger's message costs no more
// than its length.
func CheckJSON(data []byte) error {
	if len(data) > MaxMessage {
		return Errorf(CodeInvalid, "%d bytes of JSON: at most %d are taken: put bulk data into the object store",
			len(data), MaxMessage)
	}
	depth, text := 0, false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case text && b == '\\':
			i++
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			if depth++; depth > MaxDepth {
				return Errorf(CodeInvalid, "JSON nested deeper than %d levels at byte %d: flatten it", MaxDepth, i)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	if !json.Valid(data) {
		var v any
		err := json.Unmarshal(data, &v)
		return Errorf(CodeInvalid, "not valid JSON: %v", err)
	}
	return nil
}

// DecodeJob reads a job from a message, fills in lane and tenant where it names none, and validates
// it. Whatever the bytes are, the answer is a job or an Error of CodeInvalid or CodeVersion that
// names the field at fault; a job is returned with the error as far as it could be read. The spec
// is a copy.
func DecodeJob(data []byte) (Job, error) {
	if err := CheckJSON(data); err != nil {
		return Job{}, fmt.Errorf("job: %w", err)
	}
	// The version first: of a job from another version nothing else need make sense.
	var head struct {
		Version *int   `json:"v"`
		ID      string `json:"id"`
	}
	var j Job
	if err := json.Unmarshal(data, &head); err != nil {
		return Job{}, fieldError(err)
	}
	if head.Version == nil {
		return Job{ID: head.ID}, Errorf(CodeInvalid, "job %q: field v is missing: write \"v\": %d", head.ID, Version)
	}
	if *head.Version != Version {
		j = Job{Version: *head.Version, ID: head.ID}
		return j, j.Validate()
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return j, fieldError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return j, Errorf(CodeInvalid, "job %q: something follows its JSON", j.ID)
	}
	j = j.WithDefaults()
	return j, j.Validate()
}

// fieldError says in a sentence which field of a job is wrong.
func fieldError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return Errorf(CodeInvalid, "job: field %s is a JSON %s, want %v", t.Field, t.Value, t.Type)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return Errorf(CodeInvalid, "job: there is no field %s: docs/protocol.md lists the fields of version %d", name,
			Version)
	}
	return Errorf(CodeInvalid, "job: %v", err)
}

// DecodeResult reads a result from a message.
func DecodeResult(data []byte) (Result, error) {
	var r Result
	if err := CheckJSON(data); err != nil {
		return r, fmt.Errorf("result: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, Errorf(CodeInvalid, "result: %v", err)
	}
	if r.Version != Version {
		return r, Errorf(CodeVersion, "result of job %q speaks protocol version %d, this side %d: update the older "+
			"side", r.JobID, r.Version, Version)
	}
	if r.Status != Done && r.Status != Failed && r.Status != Skipped || r.Status != Done && r.Error == nil {
		return r, Errorf(CodeInvalid, "result of job %q: status %q with error %v: use %q, or %q or %q with an error",
			r.JobID, r.Status, r.Error, Done, Failed, Skipped)
	}
	return r, nil
}
