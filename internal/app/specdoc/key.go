// Package specdoc describes the specification of a swarm to people and editors: each key with its
// type, default and range, as a table, as a document in Markdown and as a JSON schema.
//
// The parser of the specification is package swarm. A test compares the table here with the fields
// of its structs, with the defaults that it fills in and with the bounds that it checks, so a key
// that is added there without a description here fails the tests.
package specdoc

import (
	"slices"
	"strings"
)

// Kind is the type of a key's value in YAML.
type Kind string

// The kinds of values.
const (
	Text     Kind = "text"
	Integer  Kind = "whole number"
	Number   Kind = "number"
	Boolean  Kind = "true or false"
	Duration Kind = "duration"                    // a number with ms, s, m or h
	Size     Kind = "size"                        // a number of bytes, also with KiB, MiB or GiB
	Texts    Kind = "list of texts"               // a YAML sequence
	OneOrAll Kind = "text or list"                // a text, or a YAML sequence of texts
	Numbers  Kind = "map of numbers"              // names to numbers
	Lengths  Kind = "list of numbers"             // a YAML sequence
	Tokens   Kind = "list of whole numbers"       // a YAML sequence
	Ticks    Kind = "whole number or list of two" // a YAML sequence of a minimum and a maximum
	Types    Kind = "map of types"                // names to types of state variables
	Jobs     Kind = "map of jobs"                 // names to jobs, which have keys themselves
	Section  Kind = "map"                         // further keys below it
	Code     Kind = "text of several"             // lines of CUDA C++
)

// Scope says which swarms a key is for.
type Scope string

// The scopes of keys.
const (
	All       Scope = ""
	Groups    Scope = "addressed: group"
	Agents    Scope = "addressed: agent"
	Custom    Scope = "cell kind custom"
	Keyed     Scope = "with key"
	GRUGroups Scope = "cell kind gru, addressed: group"
	Trained   Scope = "cell kind gru, quantum or transformer, addressed: agent"
	GRUAgents Scope = "cell kind gru, addressed: agent"
	Training  Scope = "with train"

	Quantum    Scope = "cell kind quantum, addressed: agent"
	Language   Scope = "cell kind transformer, addressed: agent"
	Izhikevich Scope = "cell kind izhikevich"
	Lattice    Scope = "cell kind custom, addressed: agent"
)

// Key describes one key of a specification.
type Key struct {
	// Path is the key with the sections above it, as in vote.rule.
	Path string
	Kind Kind
	// Values are the only valid values; nil: any value of the kind.
	Values []string
	// Min and Max are the bounds of a Number, an Integer, a Duration or a Size, and of the number
	// of elements of a list, both valid. They are written as in YAML; empty for no bound.
	Min, Max string
	// Default is the value of a key that is left out, as in YAML; empty for none.
	Default string
	Scope   Scope
	// Required reports whether a specification of the scope must have the key.
	Required bool
	// Doc is one sentence or more.
	Doc string
}

// Name returns the last part of the path.
func (k *Key) Name() string { return k.Path[strings.LastIndexByte(k.Path, '.')+1:] }

// Find returns the key of a path. The result is shared: callers do not change it.
func Find(path string) (*Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Path == path })
	if i < 0 {
		return nil, false
	}
	return &keys[i], true
}

// Keys returns all keys, sections before the keys below them. The caller owns the slice.
func Keys() []Key { return slices.Clone(keys) }
