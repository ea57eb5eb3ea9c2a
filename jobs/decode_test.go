package jobs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func valid() Job {
	return Job{
		Version: Version, ID: "a", Pool: PoolCPU, Kind: "k", Spec: json.RawMessage(`{"x":[1,"}"]}`),
		Submitted: time.Unix(1, 0).UTC(),
	}
}

func TestDecodeJob(t *testing.T) {
	j := valid()
	j.Deadline, j.MaxAttempts, j.Tenant, j.Lane = time.Unix(9, 0).UTC(), 3, "t", High
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeJob(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(data) {
		t.Fatalf("%s\n%s, %v", data, again, err)
	}
	if got, err = DecodeJob([]byte(`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1}`)); err != nil ||
		got.Lane != Normal || got.Tenant != DefaultTenant || got.MaxAttempts != Attempts {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestDecodeJobErrors(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for text, want := range map[string]string{
		``:                               "not valid JSON",
		`{`:                              "not valid JSON",
		`"x"`:                            "JSON string",
		`{"id":"a"}`:                     `field v is missing: write "v": 1`,
		`{"v":2,"id":"a","new":true}`:    "speaks protocol version 2, this agent 1: update the older side",
		`{"v":"1"}`:                      "field v is a JSON string, want int",
		`{"v":1,"id":"a b"}`:             `job id "a b": use 1 to 64 letters`,
		`{"v":1,"id":"a","kind":"x.>"}`:  `pool "": use "cpu" or "gpu"`,
		`{"v":1,"id":"a","prioritty":1}`: `there is no field "prioritty"`,
		`{"v":1,"id":"a","pool":"cpu","kind":"x.>","spec":1}`: `kind "x.>"`,
		`{"v":1,"id":"a","pool":"cpu","kind":"k"}`:            "its spec is not JSON",

		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"lane":"x"}`: `lane "x": use "high", "normal" or "low"`,

		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"tenant":"x.y"}`:          `tenant "x.y"`,
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"max_attempts":1e9}`:      "JSON number",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"max_attempts":101}`:      "max_attempts 101: use 1 to 100",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"result_ttl_s":-1}`:       "result_ttl_s -1: use 1 to 604800",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"spec_ref":{"name":"x"}}`: "a spec and a spec_ref: use one",

		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec_ref":{"name":"x",` +
			`"size":9223372036854775807}}`: "spec_ref.size 9223372036854775807",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec_ref":{"name":"x","size":1,` +
			`"sha256":"00"}}`: "64 hexadecimal digits",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1,"deadline":"2026-01-01T00:00:00Z",` +
			`"not_before":"2027-01-01T00:00:00Z"}`: "is before not_before",
		`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":` +
			deep: "nested deeper than 64 levels",
		strings.Repeat(" ", MaxMessage+1): "at most 1048576 are taken",
	} {
		_, err := DecodeJob([]byte(text))
		var e *Error
		if err == nil || !errors.As(err, &e) || e.Code != CodeInvalid && e.Code != CodeVersion ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func FuzzDecodeJob(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"v":1,"id":"a","pool":"cpu","kind":"k","spec_ref":{"name":"n","sha256":"","size":-1}}`))
	f.Add([]byte(`{"v":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := DecodeJob(data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalid && e.Code != CodeVersion {
				t.Fatalf("an error of no class: %v", err)
			}
			return
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeJob(again); err != nil && len(again) <= MaxMessage {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	f.Add([]byte(`{"v":1,"job":"a","kind":"k","status":"done","output":1}`))
	f.Add([]byte(`{"v":1,"job":"a","kind":"k","status":"failed","error":{"code":"io","message":"m"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeResult(data)
		if err == nil && (r.Version != Version || r.Status == Failed && r.Error == nil) {
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzDecodeLogLines(f *testing.F) {
	f.Add([]byte(`{"v":1,"job":"a","attempt":1,"worker":"w","lines":[{"time":"2026-01-31T12:00:00Z","level":"INFO",` +
		`"msg":"m","x":[1]}],"dropped":2}`))
	f.Add([]byte(`{"v":1,"lines":[[]],"dropped":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLogLines(data)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Code != CodeInvalid && e.Code != CodeVersion) {
			t.Fatalf("an error of no class: %v", err)
		}
		if err == nil && (l.Version != Version || len(l.Lines) > MaxLogLines || l.Attempt < 0 || l.Dropped < 0) {
			t.Fatalf("%+v", l)
		}
	})
}

// TestCheckJSON: brackets inside a string do not count as depth.
func TestCheckJSON(t *testing.T) {
	for text, ok := range map[string]bool{
		`"` + strings.Repeat("[", 1000) + `"`:                           true,
		`"\"` + strings.Repeat("[", 1000) + `"`:                         true,
		strings.Repeat("[", 64) + strings.Repeat("]", 64):               true,
		strings.Repeat("[", 65) + strings.Repeat("]", 65):               false,
		strings.Repeat("[{\"a\":", 33) + "1" + strings.Repeat("}]", 33): false,
		`[` + strings.Repeat("[],", 1000) + `[]]`:                       true,
		`"\`: false,
	} {
		if err := CheckJSON([]byte(text)); (err == nil) != ok {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}
