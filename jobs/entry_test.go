package jobs

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestDecodeEntries: what is within the limits is read, and everything else is refused with a sentence.
func TestDecodeEntries(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("1,", MaxAddressed), ",")
	for data, want := range map[string]string{
		`{"v":1,"count":3}`:              "",
		`{"v":1,"count":10000}`:          "",
		`{"v":1,"count":0}`:              "tick: count 0: use 1 to 10000",
		`{"v":1,"count":-1}`:             "tick: count -1",
		`{"v":1,"count":10001}`:          "tick: count 10001",
		`{"v":1,"count":1e300}`:          "tick: json: cannot unmarshal number 1e300",
		`{"v":1,"count":1,"agents":[1]}`: `tick: json: unknown field "agents"`,
		`{"count":1}`:                    "tick: it speaks protocol version 0, this side 1",
		`{"v":2,"else":1}`:               "tick: it speaks protocol version 2, this side 1",
		`{"v":1,"count":1}{}`:            "tick: not valid JSON",
		``:                               "tick: not valid JSON",
		`null`:                           "tick: it speaks protocol version 0",
		strings.Repeat("[", 99) + strings.Repeat("]", 99): "tick: JSON nested deeper",
	} {
		_, err := DecodeTick([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{
		`{"v":1,"agents":[0,4294967295,0]}`: "",
		`{"v":1,"groups":[7]}`:              "",
		`{"v":1,"agents":[` + many + `]}`:   "",
		`{"v":1}`:                           "query: it names 0 agents and 0 groups",
		`{"v":1,"agents":[1],"groups":[1]}`: "query: it names 1 agents and 1 groups",
		`{"v":1,"agents":[-1]}`:             "query: json: cannot unmarshal number -1",
		`{"v":1,"agents":[4294967296]}`:     "query: json: cannot unmarshal number 4294967296",
		`{"v":1,"groups":[1.5]}`:            "query: json: cannot unmarshal number 1.5",
		`{"v":1,"agents":[1,` + many + `]}`: "query: 65537 ids: ask for at most 65536 at a time",
	} {
		q, err := DecodeQuery([]byte(data))
		checkRefusal(t, data, err, want)
		if want != "" {
			continue
		}
		back, err := json.Marshal(q)
		if err != nil || string(back) != data {
			t.Errorf("%.60s was read as %.60s: %v", data, back, err)
		}
	}
	for data, want := range map[string]string{
		`{"v":1,"name":"kept"}`:         "",
		`{"v":1,"name":"../kept"}`:      `snapshot "../kept": use 1 to 64 letters`,
		`{"v":1}`:                       `snapshot "": use 1 to 64 letters`,
		`{"v":1,"name":"a","path":"/"}`: `snapshot: json: unknown field "path"`,
		`{"v":2,"name":"a"}`:            "snapshot: it speaks protocol version 2",
		`{"v":1,"name":["a"]}`:          "snapshot: json: cannot unmarshal array",
	} {
		_, err := DecodeSnapshot([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{`{"v":1}`: "", `{"v":1,"seed":2}`: `reset: json: unknown field "seed"`, `{}`: "reset: it speaks protocol version 0"} {
		_, err := DecodeReset([]byte(data))
		checkRefusal(t, data, err, want)
	}
	want := Ticked{Version: Version, Stepped: 8, Tally: []uint64{3, 5}, Decided: []uint64{0, 1}, Undecided: 1}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTicked(data)
	if err != nil || got.Stepped != 8 || got.Undecided != 1 || !slices.Equal(got.Tally, want.Tally) || !slices.Equal(got.Decided, want.Decided) {
		t.Errorf("%+v: %v", got, err)
	}
}

func checkRefusal(t *testing.T, data string, err error, want string) {
	t.Helper()
	var e *Error
	switch {
	case want == "" && err != nil:
		t.Errorf("%.60s: %v", data, err)
	case want != "" && (!errors.As(err, &e) || e.Code != CodeInvalid && e.Code != CodeVersion || !strings.HasPrefix(e.Message, want)):
		t.Errorf("%.60s:\ngot  %v\nwant %s", data, err, want)
	}
}
