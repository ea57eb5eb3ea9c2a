package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSwarms: schemas and decoders say the same of entries and records that name snapshots.
func TestSwarms(t *testing.T) {
	for text, good := range map[string]bool{
		`{"v":1,"name":"kept-1"}`: true, `{"v":1,"name":"a/b"}`: false, `{"v":1,"name":""}`: false, `{"v":1}`: false,
		`{"v":2,"name":"a"}`:          false,
		`{"v":1,"name":"a","to":"/"}`: false, `{"v":1,"name":7}`: false, `[]`: false,
	} {
		_, err := swarms.DecodeSnapshot([]byte(text))
		if serr := Validate(Snapshot, []byte(text)); (err == nil) != good || (serr == nil) != good {
			t.Errorf("%s: the decoder says %v, the schema %v", text, err, serr)
		}
	}
	sum := strings.Repeat("0a", 32)
	for from, good := range map[string]bool{
		`{"name":"a","sha256":"` + sum + `"}`: true, `{"name":"..","sha256":"` + sum + `"}`: false,
		`{"name":"a","sha256":"` + strings.ToUpper(sum) + `"}`: false,
		`{"name":"a"}`: false, `{"sha256":"` + sum + `"}`: false,
	} {
		text := `{"v":1,"id":"s","name":"s","spec":{},"groups":3,"created":"2026-01-31T12:00:00Z","from":` + from + `}`
		var s swarms.Swarm
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if err, serr := s.Validate(), Validate(Swarm, []byte(text)); (err == nil) != good || (serr == nil) != good {
			t.Errorf("%s: Validate says %v, the schema %v", text, err, serr)
		}
	}
	for rest, good := range map[string]bool{
		`"nonce":"0123456789abcdef"`: true, `"nonce":"short"`: false, `"nonce":"ABCDEFGHIJ"`: false,
		`"nonce":"../../etc/x"`: false, `"owner":"job-1","ending":true`: true, `"owner":"a b"`: false,
	} {
		text := `{"v":1,"id":"s","spec":{},"groups":3,` + rest + `}`
		var s swarms.Swarm
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if err, serr := s.Validate(), Validate(Swarm, []byte(text)); (err == nil) != good || (serr == nil) != good {
			t.Errorf("%s: Validate says %v, the schema %v", text, err, serr)
		}
	}
	for groups, good := range map[string]bool{"0": false, "1": true, "134217728": true, "134217729": false} {
		text := `{"v":1,"id":"s","spec":{},"groups":` + groups + `}`
		var s swarms.Swarm
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if err, serr := s.Validate(), Validate(Swarm, []byte(text)); (err == nil) != good || (serr == nil) != good {
			t.Errorf("%s: Validate says %v, the schema %v", text, err, serr)
		}
	}
	base := func(entry string) string { return `{"name":"a","sha256":"` + sum + `","entry":` + entry + `}` }
	for fields, good := range map[string]bool{
		`"shards":3`: true, `"shards":1`: true, `"shards":65`: false, `"shards":-1`: false, `"base":` + base("1"): true,
		`"base":` + base("0"): false,
		`"shards":2,"bases":[` + base("1") + `,` + base("7") + `]`: true,
		`"shards":2,"bases":[` + base("1") + `,` + base("0") + `]`: false,
	} {
		text := `{"v":1,"id":"s","spec":{},"groups":100,` + fields + `}`
		var s swarms.Swarm
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if err, serr := s.Validate(), Validate(Swarm, []byte(text)); (err == nil) != good || (serr == nil) != good {
			t.Errorf("%s: Validate says %v, the schema %v", text, err, serr)
		}
	}
}
