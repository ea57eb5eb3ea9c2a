// Package secret holds values that a job may use and must not see: a job names them, an operator sets them, and they appear in
// no job, log or error.
package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"strings"
)

// Prefix is what the names of environment variables begin with that a job may refer to: env:TOKEN is EXOSWARM_SECRET_TOKEN.
// Without it a job could send any variable of the agent away.
const Prefix = "EXOSWARM_SECRET_"

// maxSize bounds a secret in bytes.
const maxSize = 64 << 10

// Conditions that a caller can act on. The errors name the reference, never the value.
var (
	// ErrReference: the text is no reference.
	ErrReference = errors.New("a secret is env:NAME or file:NAME, with a name of letters, digits, '-', '_' and '.'")
	// ErrMissing: the agent has no such secret.
	ErrMissing = errors.New("this agent has no such secret")
)

// Value is a secret. However it is printed, it does not show.
type Value struct{ text string }

const hidden = "[secret]"

// Reveal returns the secret, for the place where it is used.
func (v Value) Reveal() string { return v.text }

// String implements fmt.Stringer.
func (v Value) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (v Value) GoString() string { return hidden }

// Format implements fmt.Formatter.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Store finds secrets. Its methods may be called from several goroutines.
type Store struct{ root *os.Root }

// Open returns a store whose files are those of a folder; without one, only the environment has secrets. The caller closes it.
func Open(dir string) (*Store, error) {
	if dir == "" {
		return &Store{}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of secrets: %w", err)
	}
	return &Store{root: root}, nil
}

// Close closes the folder. A second call does nothing.
func (s *Store) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

var name = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// Get returns the secret that ref names: env:NAME or file:NAME. Line ends at the end of a file are no part of it. Every call looks
// again, so that a secret can be changed while the agent runs.
func (s *Store) Get(ref string) (Value, error) {
	kind, n, _ := strings.Cut(ref, ":")
	if !name.MatchString(n) {
		return Value{}, ErrReference
	}
	switch kind {
	case "env":
		if v, ok := os.LookupEnv(Prefix + n); ok && v != "" && len(v) <= maxSize {
			return Value{v}, nil
		}
		return Value{}, fmt.Errorf("%s: %w: set %s%s, at most %d bytes", ref, ErrMissing, Prefix, n, maxSize)
	case "file":
		return s.file(ref, n)
	}
	return Value{}, ErrReference
}

func (s *Store) file(ref, n string) (Value, error) {
	missing := func(why string) (Value, error) {
		return Value{}, fmt.Errorf("%s: %w: %s", ref, ErrMissing, why)
	}
	if s.root == nil {
		return missing("start it with --secrets DIR")
	}
	info, err := s.root.Stat(n)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing("put a file of that name into its folder")
	case err != nil:
		return missing("its file cannot be read")
	case !info.Mode().IsRegular() || info.Size() > maxSize:
		return missing(fmt.Sprintf("its file must be a regular one of at most %d bytes", maxSize))
	}
	f, err := s.root.Open(n)
	if err != nil {
		return missing("its file cannot be read")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return missing("its file cannot be read")
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || len(data) > maxSize {
		return missing(fmt.Sprintf("its file must have 1 to %d bytes", maxSize))
	}
	return Value{text}, nil
}

var reference = regexp.MustCompile(`\{((?:env|file):[^{}]*)\}`)

// Expand replaces every {env:NAME} and {file:NAME} in text by its secret. used says whether there was one.
func (s *Store) Expand(text string) (v Value, used bool, err error) {
	out := reference.ReplaceAllStringFunc(text, func(m string) string {
		used = true
		secret, gerr := s.Get(m[1 : len(m)-1])
		if err == nil {
			err = gerr
		}
		return secret.Reveal()
	})
	if err != nil {
		return Value{}, used, err
	}
	return Value{out}, used, nil
}
