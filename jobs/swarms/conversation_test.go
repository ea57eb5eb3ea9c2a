package swarms

import (
	"strings"
	"testing"
)

// TestDecodeConversations: entries of conversations within the limits are read, and everything else
// is refused with field, value and cure.
func TestDecodeConversations(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("1,", MaxPromptTokens), ",")
	prompt := func(rest string) string { return `{"v":1,"agent":1,"tokens":[1],"max":1` + rest + `}` }
	for data, want := range map[string]string{
		prompt(""): "",
		prompt(`,"sampling":{"temperature":0.7,"top_k":40,"top_p":0.9,"min_p":0.05,"repetition":1.1,"seed":7}`): "",
		prompt(`,"stop":[1,2]`):                                       "",
		`{"v":1,"agent":1,"tokens":[],"max":0}`:                       "",
		`{"v":1,"agent":1,"tokens":[1,` + many + `],"max":0}`:         "prompt: 100001 tokens: use at most 100000",
		`{"v":1,"agent":1,"tokens":[1],"max":-1}`:                     "prompt: max -1: use 0",
		prompt(`,"stop":[` + strings.Repeat("1,", 16) + `1]`):         "prompt: 17 stop tokens: use at most 16",
		prompt(`,"sampling":{"temperature":-1}`):                      "prompt: temperature -1: use 0 to 100",
		prompt(`,"sampling":{"temperature":1e39}`):                    "prompt: json: cannot unmarshal number 1e39",
		prompt(`,"sampling":{"top_k":-1}`):                            "prompt: top_k -1: use 1 or more",
		prompt(`,"sampling":{"top_p":1.5}`):                           "prompt: top_p 1.5: use a share up to 1",
		prompt(`,"sampling":{"min_p":1}`):                             "prompt: min_p 1: use a share below 1",
		prompt(`,"sampling":{"repetition":0.001}`):                    "prompt: repetition 0.001: use 0.01 to 100",
		prompt(`,"sampling":{"heat":1}`):                              `prompt: json: unknown field "heat"`,
		`{"v":1,"agent":1,"tokens":[2147483648],"max":0}`:             "prompt: json: cannot unmarshal number 21474",
		`{"v":1,"agent":1,"tokens":` + strings.Repeat("[", 99) + `]}`: "prompt: JSON nested deeper",
		`{"v":2,"agent":1}`:                                           "prompt: it speaks protocol version 2",
	} {
		_, err := DecodePrompt([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{
		`{"v":1,"agent":1,"to":0}`: "", `{"v":1,"agent":1,"to":-1}`: "rewind: to -1: use 0 or more",
	} {
		_, err := DecodeRewind([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{
		`{"v":1,"agent":1,"into":2}`: "", `{"v":1,"agent":1,"into":2,"to":0}`: "",
		`{"v":1,"agent":1,"into":2,"to":-1}`: "fork: to -1: use 0 or more, or leave it out",
		`{"v":1,"agent":1,"into":1}`:         "fork: agent 1 into itself: name another agent",
	} {
		_, err := DecodeFork([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{
		`{"v":1,"text":{"agent":3,"from":0}}`:                "",
		`{"v":1,"text":{"agent":3,"from":-1}}`:               "query: text from -1 on: use 0 or more",
		`{"v":1,"text":{"agent":3,"from":0},"agents":[1]}`:   "query: it asks for the text of agent 3 and for others",
		`{"v":1,"text":{"agent":3,"from":0},"outcome":true}`: "query: it asks for the text of agent 3 and for others",
	} {
		_, err := DecodeQuery([]byte(data))
		checkRefusal(t, data, err, want)
	}
	for data, want := range map[string]string{
		`{"v":1,"agent":0,"from":2,"tokens":[1],"at":3,"read":3}`:                   "",
		`{"v":1,"agent":0,"from":2,"tokens":[1,1],"at":3,"read":3}`:                 "text: 2 tokens from 2 on of 3",
		`{"v":1,"agent":0,"from":9223372036854775807,"tokens":[1],"at":3,"read":3}`: "text: 1 tokens from 922",
		`{"v":1,"agent":0,"from":0,"tokens":[],"at":3,"read":4}`:                    "text: 0 tokens from 0 on of 3",
	} {
		_, err := DecodeText([]byte(data))
		checkRefusal(t, data, err, want)
	}
}
