package cpuagents

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/schema"
)

// TestStreamSchema: the schema and the documentation name the fields that the handler reads, and no
// others.
func TestStreamSchema(t *testing.T) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema.Text(schema.Stream), &s); err != nil {
		t.Fatalf("json.Unmarshal: %v, want no error", err)
	}
	doc, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatalf("os.ReadFile: %v, want no error", err)
	}
	_, section, _ := strings.Cut(string(doc), "## The kind `stream`")
	section, _, _ = strings.Cut(section, "\n## ")
	var fields []string
	for f := range reflect.TypeFor[StreamSpec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if fields = append(fields, name); !strings.Contains(section, "`"+name+"`") {
			t.Errorf("docs/protocol.md does not name %s", name)
		}
	}
	slices.Sort(fields)
	if named := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(named, fields) {
		t.Errorf("the schema has the fields %v, the handler %v", named, fields)
	}
}
