package transformer

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// gopher reads the model of examples/model.
func gopher(t *testing.T) (*model, *tokenizer.Tokenizer) {
	t.Helper()
	file, err := os.Open("../../examples/model/gopher.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	p, err := architecture.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	words, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{p: *p, kind: quant.Q8_0, tensors: map[string]tensor{}}
	for _, of := range f.Tensors {
		data := make([]byte, of.Bytes)
		if _, err := file.ReadAt(data, of.First); err != nil {
			t.Fatal(err)
		}
		elements, bytes, _ := quant.Block(of.Type)
		values := make([]float32, of.Bytes/bytes*elements)
		if err := quant.Decode(of.Type, values, data); err != nil {
			t.Fatal(err)
		}
		m.tensors[of.Name] = tensor{of.Shape, of.Type, data, values}
	}
	return m, words
}

// TestGopher: a model that was trained elsewhere, whose pairs of rotary positions are those of
// GGUF, expects the text of a Go program, and its float64 twin as much.
func TestGopher(t *testing.T) {
	of, words := gopher(t)
	const text = `// Copyright 2009 The Go Authors. All rights reserved.
// Use of this source code is governed by a BSD-style
// license that can be found in the LICENSE file.

package main

import (
	"fmt"
	"os"
)

func main() {
	for i, arg := range os.Args[1:] {
		if err := run(arg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
`
	tokens, err := words.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	if begin, is := words.Begin(); is {
		tokens = slices.Insert(tokens, 0, begin)
	}
	dev := opentest.Device(t)
	c, twin := alone(t, dev, machine(t, dev, of, Options{PagePositions: 16}), len(tokens)), newPlain(of)
	bits, worst := 0.0, 0.0
	for i, token := range tokens[:len(tokens)-1] {
		got := c.read(t, token)
		_, want := twin.next(token)
		worst = max(worst, off(got, want))
		bits -= math.Log2(likelihoods(got, Sampling{Temperature: 1}, nil)[tokens[i+1]])
	}
	if worst > 1e-5 {
		t.Errorf("off by %.2e from the twin", worst)
	}
	if bits /= float64(len(text)); bits > 2 {
		t.Errorf("%.3f bits for each byte of a Go program: the model computes something else", bits)
	}
	t.Logf("%.3f bits for each byte", bits)
}
