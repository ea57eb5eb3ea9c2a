// Package schema holds the JSON Schemas of the protocol and checks messages against them. An error
// names the field that is wrong, what it holds, and what to write instead.
package schema

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5" // v6 needs golang.org/x/text for its messages: 7 MB

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

//go:embed *.schema.json
var files embed.FS

// Name is one of the schemas.
type Name string

// The schemas of protocol version 1.
const (
	Job        Name = "job"        // a message of a queue
	Submission Name = "submission" // a request to exo.api.submit
	Result     Name = "result"     // a message of the stream of results
	Schedule   Name = "schedule"   // a request to exo.api.cron.add
	Limits     Name = "limits"     // a tenant's entry in EXO_CONTROL
	Swarm      Name = "swarm"      // a swarm's record in EXO_SWARMS
	Snapshot   Name = "snapshot"   // an entry snapshot of a swarm's log
	Stream     Name = "stream"     // the spec of a job of kind stream
	Array      Name = "array"      // an array in the spec of a job of pool gpu
)

// Names lists the schemas.
func Names() []Name {
	all := []Name{Job, Submission, Result, Schedule, Limits, Swarm, Snapshot, Stream, Array}
	for _, kind := range gpujob.Kinds() { // the spec of a job of pool gpu and that kind
		all = append(all, Name(kind))
	}
	return all
}

const base = "https://exoswarm.dev/schema/v1/"

// Text returns a schema as JSON, or nil when there is none of that name.
func Text(n Name) []byte {
	data, err := files.ReadFile(string(n) + ".schema.json")
	if err != nil {
		return nil
	}
	return data
}

// compiled is made at the first use. The schemas are part of the program, so a failure is a defect
// of the program.
var compiled = sync.OnceValues(func() (map[Name]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat, c.ExtractAnnotations = true, true
	for _, n := range Names() {
		if err := c.AddResource(base+string(n)+".schema.json", bytes.NewReader(Text(n))); err != nil {
			return nil, fmt.Errorf("schema %s: %w", n, err)
		}
	}
	all := map[Name]*jsonschema.Schema{}
	for _, n := range Names() {
		s, err := c.Compile(base + string(n) + ".schema.json")
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", n, err)
		}
		all[n] = s
	}
	return all, nil
})

// Error is what is wrong with a message.
type Error struct {
	Field string // JSON pointer to the field at fault, empty for the message as a whole
	Value string // what it holds, as JSON, at most 80 bytes; empty when it is missing
	Cure  string // what to write instead
	what  string
}

func (e *Error) Error() string {
	s := e.what
	if e.Field != "" {
		s = "field " + e.Field + ": " + s
	}
	if e.Value != "" {
		s += ": it is " + e.Value
	}
	if e.Cure != "" {
		s += ": " + e.Cure
	}
	return s
}

// Unwrap makes it an error of class jobs.CodeInvalid.
func (e *Error) Unwrap() error { return &jobs.Error{Code: jobs.CodeInvalid, Message: e.Error()} }

// Validate returns an *Error unless data is a message of the schema. It first bounds size and
// depth, so a message of a stranger costs no more than its length.
func Validate(n Name, data []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	s := all[n]
	if s == nil {
		return fmt.Errorf("there is no schema %q", n)
	}
	if err := jobs.CheckJSON(data); err != nil {
		return &Error{what: err.Error()}
	}
	var doc any
	d := json.NewDecoder(bytes.NewReader(data)) // CheckJSON has found one value and nothing behind it
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return &Error{what: err.Error()}
	}
	err = s.Validate(doc)
	var v *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &v):
		return explain(s, doc, v)
	}
	return err
}

// kindStream is the kind of job that CPU agents do without a user's handler.
const kindStream = "stream"

// CheckSpec returns an *Error when the spec of a job of a built-in kind is not valid. Handlers
// check specs of other kinds and specs that are objects.
func CheckSpec(j jobs.Job) error {
	var err error
	switch {
	case j.SpecRef != nil:
		return nil
	case j.Pool == jobs.PoolCPU && j.Kind == kindStream:
		if err = Validate(Stream, j.Spec); err == nil {
			err = checkCSV(j.Spec)
		}
	case j.Pool == jobs.PoolGPU && gpujob.NewSpec(j.Kind) != nil && len(j.Spec) <= jobs.MaxInline:
		// The agent checks larger specs, which are mostly arrays.
		err = Validate(Name(j.Kind), j.Spec)
	}
	var e *Error
	if errors.As(err, &e) {
		e.Field = "/spec" + e.Field
	}
	return err
}

// CheckSchedule is CheckSpec for the job of a schedule.
func CheckSchedule(s jobs.Schedule) error {
	err := CheckSpec(s.Job)
	var e *Error
	if errors.As(err, &e) {
		e.Field = "/job" + e.Field
	}
	return err
}

// checkCSV checks what the schema cannot say of the dialect of a stream's CSV files: forms of
// timestamps, zones, and what excludes each other.
func checkCSV(spec json.RawMessage) error {
	var s struct {
		Columns struct {
			CSV *dialect.CSV `json:"csv"`
		} `json:"columns"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return &Error{what: err.Error()}
	}
	if key, err := s.Columns.CSV.Validate(); err != nil {
		what, cure, _ := strings.Cut(err.Error(), ": ")
		return &Error{Field: "/columns/csv/" + key, what: what, Cure: cure}
	}
	return nil
}

// explain turns the first of the deepest complaints into an Error.
func explain(s *jsonschema.Schema, doc any, v *jsonschema.ValidationError) *Error {
	for len(v.Causes) > 0 {
		// The order of a map is random; make it the same every time.
		sort.SliceStable(v.Causes, func(i, j int) bool {
			return v.Causes[i].InstanceLocation < v.Causes[j].InstanceLocation
		})
		v = v.Causes[0]
	}
	e := &Error{what: v.Message}
	at := s
	for _, step := range steps(v.InstanceLocation) {
		e.Field += "/" + step
		doc = child(doc, step)
		if at != nil {
			for at.Ref != nil {
				at = at.Ref
			}
			if at.Items2020 != nil { // an array
				at = at.Items2020
			} else {
				at = at.Properties[step]
			}
		}
	}
	for at != nil && at.Ref != nil {
		at = at.Ref
	}
	if e.Field != "" {
		e.Value = short(doc)
		if at != nil {
			e.Cure = at.Description
		}
	} else {
		var names []string
		for name := range s.Properties {
			names = append(names, name)
		}
		sort.Strings(names)
		e.Cure = "the fields are " + strings.Join(names, ", ")
	}
	return e
}

// steps returns the names and places of a location, which is a JSON pointer whose steps are escaped
// as in a URL, too.
func steps(location string) []string {
	if location == "" {
		return nil
	}
	all := strings.Split(location[1:], "/")
	for i, step := range all {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		all[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
	}
	return all
}

func child(doc any, step string) any {
	switch d := doc.(type) {
	case map[string]any:
		return d[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(d) {
			return d[i]
		}
	}
	return nil
}

func short(v any) string {
	const most = 80
	text := fmt.Sprint(v)
	if s, ok := v.(string); ok {
		text = strconv.Quote(s)
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// ParseLimits reads limits as an operator has stored them. Its error is an *Error or of
// encoding/json.
func ParseLimits(data []byte) (l jobs.Limits, err error) {
	if err = Validate(Limits, data); err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, err
}
