package schema

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestCheckSpec: specs of the kind stream are checked, specs of other kinds are not.
func TestCheckSpec(t *testing.T) {
	const good = `{"name":"a","spec":{"name":"a"},"candidates":["x"],"columns":{"timestamp":"t","features":["v"]},` +
		`"manifest":"file:r/m","output":"file:r/o","rejects":"file:r/r","summary":"file:r/s"}`
	job := func(text string) jobs.Job {
		return jobs.Job{Pool: jobs.PoolCPU, Kind: "stream", Spec: json.RawMessage(text)}
	}
	if err := CheckSpec(job(good)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, with, field string }{
		{good, `{}`, "/spec"},
		{good, `null`, "/spec"},
		{`"candidates":["x"]`, `"candidates":[]`, "/spec/candidates"},
		{`"features":["v"]`, `"features":[]`, "/spec/columns/features"},
		{`"output":`, `"ouptut":`, "/spec"},
		{`"output":"file:r/o"`, `"output":"file:r/o","batch_rows":5000`, "/spec/batch_rows"},
		{`"output":"file:r/o"`, `"output":"file:r/o","output_format":"xlsx"`, "/spec/output_format"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"delimiter":"ab"}`, "/spec/columns/csv/delimiter"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"decimal":";"}`, "/spec/columns/csv/decimal"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"delimitr":";"}`, "/spec/columns/csv"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"time":"rfc3339"}`, "/spec/columns/csv/time"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"time":["yesterday"]}`, "/spec/columns/csv/time"},
		{`"timestamp":"t"`, `"timestamp":"t","csv":{"zone":"Mars/X"}`, "/spec/columns/csv/zone"},
	} {
		var e *Error
		if err := CheckSpec(job(strings.Replace(good, c.old, c.with, 1))); !errors.As(err, &e) || e.Field != c.field ||
			e.Cure == "" {
			t.Errorf("%s: %v", c.with, err)
		}
	}
	for _, j := range []jobs.Job{
		{Pool: jobs.PoolCPU, Kind: "words", Spec: json.RawMessage(`{}`)},
		{Pool: jobs.PoolGPU, Kind: "stream", Spec: json.RawMessage(`{}`)},
		{Pool: jobs.PoolCPU, Kind: "reduce", Spec: json.RawMessage(`{}`)},
	} {
		if err := CheckSpec(j); err != nil {
			t.Error(err)
		}
	}
}

// TestCheckSpecDialects: every delimiter that a dialect takes passes the schema.
func TestCheckSpecDialects(t *testing.T) {
	for c := range 128 {
		d := dialect.CSV{
			Delimiter: string(rune(c)), Decimal: ",", Time: dialect.Forms{"02.01.2006"},
			Zone: "Europe/Berlin",
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		spec := `{"name":"a","spec":{"name":"a"},"candidates":["x"],"columns":{"timestamp":"t",` +
			`"features":["v"],"csv":` + string(text) +
			`},"manifest":"file:r/m","output":"file:r/o","rejects":"file:r/r","summary":"file:r/s"}`
		_, want := d.Validate()
		if err := Validate(Stream, json.RawMessage(spec)); (err == nil) != (want == nil) {
			t.Errorf("delimiter %#x: the schema says %v, the dialect %v", c, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]*Error{
		`{"pool":"cpu","kind":"k","spec":1,"lane":"urgent"}`: {
			Field: "/lane", Value: `"urgent"`,
			Cure: `use "high", "normal" or "low"`,
		},
		`{"pool":"tpu","kind":"k","spec":1}`: {
			Field: "/pool", Value: `"tpu"`,
			Cure: `use "cpu" or "gpu"`,
		},
		`{"pool":"cpu","kind":"a.b","spec":1}`: {
			Field: "/kind", Value: `"a.b"`,
			Cure: "use 1 to 64 letters",
		},
		`{"pool":"cpu","kind":"k","spec":1,"max_attempts":1000}`: {
			Field: "/max_attempts", Value: "1000",
			Cure: "use 1 to 100",
		},
		`{"pool":"cpu","kind":"k","spec":1,"deadline":"soon"}`: {
			Field: "/deadline", Value: `"soon"`,
			Cure: "a time such as",
		},
		`{"pool":"cpu","kind":"k","spec":1,"prioritty":1}`: {
			Cure: "the fields are after, deadline, durability, id, kind",
		},
		`{"pool":"cpu","kind":"k","spec":1,"after":["a b"]}`: {
			Field: "/after/0", Value: `"a b"`,
			Cure: "use 1 to 64 letters",
		},
		`{"kind":"k"}`: {Cure: "the fields are"},
		`[`:            {},
	} {
		var e *Error
		err := Validate(Submission, []byte(text))
		if !errors.As(err, &e) || e.Field != want.Field || e.Value != want.Value ||
			!strings.HasPrefix(e.Cure, want.Cure) || jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("%s: %+v", text, err)
		}
	}
	if err := Validate(Submission,
		[]byte(`{"pool":"gpu","kind":"infer","spec":{"x":1},"lane":"low",`+
			`"not_before":"2026-01-31T12:00:00Z"}`)); err != nil {
		t.Error(err)
	}
	if err := Validate(Result,
		[]byte(`{"v":1,"job":"a","kind":"k","status":"failed","attempts":1,"worker":"w",`+
			`"finished":"2026-01-31T12:00:00Z"}`)); err == nil {
		t.Error("a failed result without an error was taken")
	}
}

// TestAgrees: the schema and the decoder that workers use say the same of every message, save for
// what no schema can say: an order of two times.
func TestAgrees(t *testing.T) {
	values := map[string][]string{
		"v": {"1", "1", "1", "2", `"1"`}, "id": {`"a"`, `"a"`, `"a b"`, `""`, "3"}, "pool": {`"cpu"`, `"gpu"`, `"tpu"`},
		"kind": {`"k"`, `"k"`, `"k.k"`, "null"}, "spec": {"1", `{"a":[]}`}, "lane": {`"high"`, `"low"`, `"x"`},
		"tenant": {`"t"`, `"t t"`}, "max_attempts": {"0", "1", "100", "101", "-1", "1.5"},
		"result_ttl_s": {"1", "604800", "604801", `"1"`},
		"deadline":     {`"2027-01-01T00:00:00Z"`, `"now"`}, "not_before": {`"2026-01-01T00:00:00Z"`, "5"},
		"spec_ref": {
			`{"name":"n","sha256":"` + strings.Repeat("a", 64) + `","size":1}`,
			`{"name":"","sha256":"","size":-1}`,
		}, "extra": {"1"},
	}
	var names []string
	for n := range values {
		names = append(names, n)
	}
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		doc := map[string]json.RawMessage{}
		for _, n := range []string{"v", "id", "pool", "kind"} {
			switch rapid.IntRange(0, 14).Draw(rt, "what of "+n) {
			case 0: // left out
			case 1:
				doc[n] = json.RawMessage(rapid.SampledFrom(values[n]).Draw(rt, n))
			default: // a good one
				doc[n] = json.RawMessage(values[n][0])
			}
		}
		if rapid.IntRange(0, 9).Draw(rt, "no spec") > 0 {
			doc["spec"] = json.RawMessage("1")
		}
		for range rapid.IntRange(0, 2).Draw(rt, "more") {
			n := rapid.SampledFrom(names).Draw(rt, "name")
			doc[n] = json.RawMessage(rapid.SampledFrom(values[n]).Draw(rt, n))
		}
		data, err := json.Marshal(doc)
		if err != nil {
			rt.Fatal(err)
		}
		_, byDecoder := jobs.DecodeJob(data)
		bySchema := Validate(Job, data)
		if (byDecoder == nil) != (bySchema == nil) {
			rt.Fatalf("%s\ndecoder: %v\nschema: %v", data, byDecoder, bySchema)
		}
		if byDecoder == nil {
			accepted++
		}
	})
	if accepted == 0 {
		t.Error("no message was valid")
	}
}

// TestDocumented: docs/protocol.md names every field of a job, and docs/gpu-jobs.md every field of
// jobs of pool gpu.
func TestDocumented(t *testing.T) {
	var doc []byte
	for _, name := range []string{"protocol.md", "gpu-jobs.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, text...)
	}
	var s struct {
		Properties map[string]any `json:"properties"`
	}
	for _, n := range Names() {
		if err := json.Unmarshal(Text(n), &s); err != nil {
			t.Fatal(err)
		}
	}
	for name := range s.Properties {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/protocol.md and docs/gpu-jobs.md do not name the field %s", name)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(`{"pool":"cpu","kind":"k","spec":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, n := range Names() {
			err := Validate(n, data)
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("%s: an error of no class: %v", n, err)
			}
		}
	})
}
