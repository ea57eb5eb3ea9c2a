package swarms

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestDecodeEntries: what is within the limits is read, and everything else is refused with a
// sentence.
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
	for data, want := range map[string]string{
		`{"v":1}`: "", `{"v":1,"seed":2}`: `reset: json: unknown field "seed"`,
		`{}`: "reset: it speaks protocol version 0",
	} {
		_, err := DecodeReset([]byte(data))
		checkRefusal(t, data, err, want)
	}
	sha := strings.Repeat("0f", 32)
	for data, want := range map[string]string{
		`{"v":1,"name":"m","sha256":"` + sha + `"}`:          "",
		`{"v":1,"name":"../m","sha256":"` + sha + `"}`:       `model "../m": use 1 to 64 letters`,
		`{"v":1,"name":"m","sha256":"0F"}`:                   `model m: sha256 "0F": use the 64 hexadecimal digits`,
		`{"v":1,"name":"m"}`:                                 `model m: sha256 "": use the 64 hexadecimal digits`,
		`{"v":1,"name":"m","sha256":"` + sha + `","seed":1}`: `adopt: json: unknown field "seed"`,
		`{"v":2,"name":"m","sha256":"` + sha + `"}`:          "adopt: it speaks protocol version 2",
	} {
		_, err := DecodeAdopt([]byte(data))
		checkRefusal(t, data, err, want)
	}
	want := Ticked{Version: jobs.Version, Stepped: 8, Tally: []uint64{3, 5}, Decided: []uint64{0, 1}, Undecided: 1}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTicked(data)
	if err != nil || got.Stepped != 8 || got.Undecided != 1 || !slices.Equal(got.Tally, want.Tally) ||
		!slices.Equal(got.Decided, want.Decided) {
		t.Errorf("%+v: %v", got, err)
	}
}

// TestDecodeVotes: votes and fusions within the limits are read, and everything else is refused
// with field, value and cure.
func TestDecodeVotes(t *testing.T) {
	for data, want := range map[string]string{
		`{"v":1,"round":1}`: "",
		`{"v":1,"round":18446744073709551615,"rule":"quorum","quorum":"2/3","of":"all","priority":"seeded"}`: "",
		`{"v":1,"round":1,"rule":"unanimous","of":"cast","priority":"uniform"}`:                              "",
		`{"v":1,"priority":"elected"}`: "",
		`{"v":1}`:                      "",
		`{"v":1,"round":-1}`:           "vote: json: cannot unmarshal number -1",
		`{"v":1,"round":1,"rule":"weighted"}`: `vote: rule "weighted": votes of agents that are addressed weigh the ` +
			`same: use plurality`,

		`{"v":1,"round":1,"rule":"most"}`: `vote: rule "most": use plurality, majority, quorum or unanimous`,

		`{"v":1,"round":1,"of":"all"}`:                    `vote: of "all": plurality asks for no share`,
		`{"v":1,"round":1,"rule":"majority","of":"some"}`: `vote: of "some": use cast or all`,
		`{"v":1,"round":1,"priority":"high"}`:             `vote: priority "high": use elected, uniform or seeded`,

		`{"v":1,"round":1,"quorum":"1/2"}`: `vote: quorum "1/2": only the rule quorum takes one`,

		`{"v":1,"round":1,"rule":"quorum"}`:                `vote: quorum "": use a share above 0`,
		`{"v":1,"round":1,"rule":"quorum","quorum":"0/7"}`: `vote: quorum "0/7": use a share above 0`,

		`{"v":1,"round":1,"rule":"quorum","quorum":"4/3"}`: `vote: quorum "4/3": use a share above 0 and at most 1`,

		`{"v":1,"round":1,"rule":"quorum","quorum":"1/0"}`:          `vote: quorum "1/0": use a share`,
		`{"v":1,"round":1,"rule":"quorum","quorum":"-1/2"}`:         `vote: quorum "-1/2": use a share`,
		`{"v":1,"round":1,"rule":"quorum","quorum":"1e-999999999"}`: `vote: quorum "1e-999999999": use a share`,
		`{"v":1,"round":1,"rule":"quorum","quorum":"0.0000000001"}`: `vote: quorum "0.0000000001": it is ` +
			`1/10000000000, whose parts must be below 2^32`,
		`{"v":1,"round":1,"rule":"quorum","quorum":0.5}`:              "vote: json: cannot unmarshal number",
		`{"v":1,"round":1,"nodes":1}`:                                 `vote: json: unknown field "nodes"`,
		`{"v":2,"round":1}`:                                           "vote: it speaks protocol version 2",
		`{"v":1,"round":1,"rule":"` + strings.Repeat("x", 200) + `"}`: `vote: rule "` + strings.Repeat("x", 98),
	} {
		_, err := DecodeVote([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for quorum, want := range map[string][2]uint32{
		"2/3": {2, 3}, "0.6": {3, 5}, "1": {1, 1},
		"4294967294/4294967295": {4294967294, 4294967295}, "6/9": {2, 3},
	} {
		num, den, err := Vote{Rule: RuleQuorum, Quorum: quorum}.Share()
		if got := [2]uint32{num, den}; err != nil || got != want {
			t.Errorf("%s is %v: %v", quorum, got, err)
		}
	}
	for data, want := range map[string]string{
		`{"v":1,"by":"group"}`:               "",
		`{"v":1,"by":"group","nodes":65536}`: "",
		`{"v":1,"by":"vote"}`:                "",
		`{"v":1,"by":"all"}`:                 "",
		`{"v":1}`:                            `fuse: by "": use group, vote or all`,
		`{"v":1,"by":"group","nodes":65537}`: "fuse: nodes 65537: use 1 to 65536",
		`{"v":1,"by":"group","nodes":-1}`:    "fuse: nodes -1: use 1 to 65536",
		`{"v":1,"by":"vote","nodes":2}`:      "fuse: nodes 2: by vote there are as many as there are: leave it out",
		`{"v":1,"by":"all","round":2}`:       `fuse: json: unknown field "round"`,
		`{"v":0,"by":"all"}`:                 "fuse: it speaks protocol version 0",
	} {
		_, err := DecodeFuse([]byte(data))
		checkRefusal(t, data, err, want)
	}
	one := 1
	want := Voted{
		Version: jobs.Version, Round: 9, Winner: &one, Counts: []uint64{3, 5}, Abstentions: 2, QuorumMet: true,
		Leader: &Leader{Agent: 4, Priority: 7},
	}
	for _, w := range []*int{&one, nil} {
		if want.Winner = w; w == nil {
			want.Leader, want.Bids = nil, []*Bid{nil, {Agent: 4, Priority: 7, Term: 2}}
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeVoted(data)
		back, merr := json.Marshal(got)
		if err != nil || merr != nil || string(back) != string(data) {
			t.Errorf("%s was read as %s: %v %v", data, back, err, merr)
		}
	}
}

// FuzzDecodeEntries: for any bytes in a log, a decoder returns a value within its limits, or an
// error of a class.
func FuzzDecodeEntries(f *testing.F) {
	for _, data := range []string{
		`{"v":1,"count":3}`, `{"v":1,"agents":[0,4294967295]}`,
		`{"v":1,"round":1,"rule":"quorum","quorum":"2/3","of":"all","priority":"seeded"}`,
		`{"v":1,"round":7,"rule":"quorum","quorum":"0.60"}`, `{"v":1,"by":"group","nodes":9}`, `{"v":1,"by":"vote"}`,
		`{"v":2}`, `null`, ``, "\xff", `{"v":1,"nodes":[3,0],"values":[1,-0.5,0,0.25],"replace":true}`,
		`{"v":1,"nodes":[3,3],"values":[1,2]}`, `{"v":1,"count":1,"sums":"AAAAAAAAAAA="}`, `{"v":1,"sums":true}`,
		`{"v":1,"agent":1,"tokens":[5,6],"max":3,"sampling":{"temperature":0.5},"stop":[0]}`,
		`{"v":1,"agent":1,"into":2,"to":0}`, `{"v":1,"agent":0,"from":2,"tokens":[1],"at":3,"read":3}`,
		`{"v":1,"nodes":1,"units":1,"words":"AAAAAAAAAAAAAAAAAAAAAA=="}`, `{"v":1,"nodes":-1,"units":9,"words":""}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		classed := func(err error) bool {
			var e *jobs.Error
			if err != nil && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid && e.Code != jobs.CodeVersion) {
				t.Fatalf("an error of no class: %v", err)
			}
			return err == nil
		}
		if tick, err := DecodeTick(data); classed(err) && (tick.Count < 1 || tick.Count > MaxTicks) {
			t.Fatalf("%+v", tick)
		}
		if q, err := DecodeQuery(data); classed(err) && len(q.Agents)+len(q.Groups) > MaxAddressed {
			t.Fatal(len(q.Agents), len(q.Groups))
		}
		if v, err := DecodeVote(data); classed(err) {
			num, den, err := v.Share()
			if err != nil || num > den || den == 0 || (num == 0) != (v.Rule != RuleQuorum) {
				t.Fatalf("%+v: %d/%d: %v", v, num, den, err)
			}
		}
		if l, err := DecodeLearn(data); classed(err) && (len(l.Nodes) < 1 || len(l.Nodes) > MaxLearned ||
			len(l.Values)%len(l.Nodes) != 0 || slices.Max(l.Values) > 1 || slices.Min(l.Values) < -1) {
			t.Fatalf("%+v", l)
		}
		if a, err := DecodeAdopt(data); classed(err) && a.Validate() != nil {
			t.Fatalf("%+v", a)
		}
		if p, err := DecodePrompt(data); classed(err) && (p.Max < 0 || len(p.Stop) > MaxStopTokens) {
			t.Fatalf("%+v", p)
		}
		if r, err := DecodeRewind(data); classed(err) && r.To < 0 {
			t.Fatalf("%+v", r)
		}
		if k, err := DecodeFork(data); classed(err) && k.Agent == k.Into {
			t.Fatalf("%+v", k)
		}
		if text, err := DecodeText(data); classed(err) && len(text.Tokens) > text.At-text.From {
			t.Fatalf("%+v", text)
		}
		if n, err := DecodeNodeSums(data); classed(err) && len(Words(n.Words)) != n.Nodes*(n.Units+1) {
			t.Fatalf("%+v", n)
		}
		if u, err := DecodeFuse(data); classed(err) &&
			(u.Nodes < 0 || u.Nodes > MaxAddressed || u.Nodes != 0 && u.By != ByGroup) {
			t.Fatalf("%+v", u)
		}
	})
}

func checkRefusal(t *testing.T, data string, err error, want string) {
	t.Helper()
	var e *jobs.Error
	switch {
	case want == "" && err != nil:
		t.Errorf("%.60s: %v", data, err)
	case want != "" && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid && e.Code != jobs.CodeVersion ||
		!strings.HasPrefix(e.Message, want)):
		t.Errorf("%.60s:\ngot  %v\nwant %s", data, err, want)
	}
}
