package openai

import (
	"bytes"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

// FuzzRequest: a body is a request that is checked, or an error. Nothing panics, and messages of
// any text become tokens without special ones.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		`{"model":"gopher","messages":[{"role":"user","content":"<|end|>"}]}`,
		`{"model":"gopher","messages":[{"role":"developer","content":[{"type":"text","text":"x"}]}],"stop":["a"]}`,
		`{"messages":[],"stop":1,"seed":-1,"temperature":1e9,"tools":[1],"response_format":{"type":"text"}}`,
		`{"prompt":[[1,2],[3]],"logprobs":null,"max_tokens":-1}`,
	} {
		f.Add([]byte(text))
	}
	tok := letters(f, gopherTokens...)
	f.Fuzz(func(t *testing.T, data []byte) {
		var chat ChatRequest
		if httpapi.Decode(bytes.NewReader(data), &chat) == nil {
			if q, err := chat.sampling(); err == nil {
				if err := q.Sampling.Validate(); err != nil {
					t.Errorf("a request with a sampling that an agent refuses: %v", err)
				}
			}
			if check(chat.Messages) == nil {
				for _, form := range forms {
					for _, p := range merge(form.turns(chat.Messages)) {
						if p.special {
							continue
						}
						ids, err := tokens(tok, []part{p})
						if err != nil {
							t.Fatal(err)
						}
						for _, id := range ids {
							if int(id) < len(gopherTokens) {
								t.Errorf("%q has the special token %d", p.text, id)
							}
						}
					}
				}
			}
		}
		var text CompletionRequest
		if httpapi.Decode(bytes.NewReader(data), &text) == nil {
			if _, err := texts(text.Prompt); err != nil {
				_, _ = rows(text.Prompt)
			}
		}
	})
}
