// Package modeltest has a small language model for the tests of several packages: two layers of width
// 32 and 40 tokens, without a tokenizer. A position of its cache takes 256 bytes.
package modeltest

import (
	"bytes"
	_ "embed" // the file of the model
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

//go:embed small.gguf
var small []byte

// Load stores the model in a place, as the model small.
func Load(t testing.TB, store snapshot.Store) swarms.ModelRef {
	t.Helper()
	_, digest, err := model.Load(t.Context(), store, "small", []model.Part{{
		Name: model.GGUFName, Bytes: int64(len(small)), From: bytes.NewReader(small),
	}}, model.About{})
	testkit.NoError(t, "model.Load", err)
	return swarms.ModelRef{Name: "small", SHA256: digest}
}
