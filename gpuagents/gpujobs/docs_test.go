package gpujobs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

var examplePattern = regexp.MustCompile("(?s)^(\\w+)\n.*?```json\n(.*?)```")

// TestDocument: docs/gpu-jobs.md has an example of each kind, and its output is the one that is
// shown.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/gpu-jobs.md")
	if err != nil {
		t.Fatalf("read the document: %v", err)
	}
	r := start(t, gpujobs.Options{AllowKernels: true, Models: models(t), TrainPrograms: true})
	seen := 0
	for _, section := range bytes.Split(text, []byte("\n## ")) {
		m := examplePattern.FindSubmatch(section)
		if m == nil {
			continue
		}
		kind := string(m[1])
		seen++
		if kind == gpujob.KindKernel && *deviceName == "host" {
			continue
		}
		var spec json.RawMessage
		var got, want map[string]any
		example := json.NewDecoder(bytes.NewReader(m[2]))
		if err := errors.Join(example.Decode(&spec), example.Decode(&want)); err != nil {
			t.Fatalf("%s: the example is not a specification and an output: %v", kind, err)
		}
		out, err := r.try(t.Context(), jobs.Job{ID: "j", Kind: kind, Spec: spec})
		if err != nil {
			t.Errorf("the example of %s: %v, want no error", kind, err)
			continue
		}
		data, err := json.Marshal(out)
		if err != nil {
			t.Fatalf("encode the output of %s: %v", kind, err)
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("decode the output of %s: %v", kind, err)
		}
		for _, ran := range []string{"device", "model", "seconds"} {
			delete(got, ran)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the output is %s, the document shows %s", kind, data, m[2])
		}
	}
	if seen != len(gpujob.Kinds()) {
		t.Errorf("the document has examples of %d kinds, want %d", seen, len(gpujob.Kinds()))
	}
}
