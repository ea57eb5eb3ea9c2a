package transformer

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
)

// TestGreedy: gopher has the likeliest tokens that gopher.py has computed with PyTorch in
// float32, whose least distance to the second logit was 0.0038. A turn in the middle of a text is
// read in one step, and the others one by one.
func TestGreedy(t *testing.T) {
	var all []struct {
		Prompt       string
		Tokens, More []int32
	}
	data, err := os.ReadFile("testdata/greedy.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	of, words := gopher(t)
	dev := opentest.Device(t)
	m := machine(t, dev, of, Options{PagePositions: 16})
	for _, want := range all {
		tokens, err := words.Encode(want.Prompt, true)
		if err != nil || !slices.Equal(tokens, want.Tokens) {
			t.Errorf("Encode of %q: %v, %v, want %v", want.Prompt, tokens, err, want.Tokens)
		}
		c := alone(t, dev, m, len(want.Tokens)+len(want.More))
		next, more := want.Tokens, []int32(nil)
		for range want.More {
			token, _ := largest(c.read(t, next...))
			next = []int32{int32(token)}
			more = append(more, int32(token))
		}
		if !slices.Equal(more, want.More) {
			t.Errorf("behind %q: %v, want %v", want.Prompt, more, want.More)
		}
	}
}
