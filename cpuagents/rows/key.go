package rows

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

const (
	// MaxKey bounds the key of a row in bytes, with a byte between two values.
	MaxKey = 1 << 10
	// MaxKeyColumns bounds the columns of a key.
	MaxKeyColumns = 8
	// DefaultMaxEntities is the number of entities of a job that names no other.
	DefaultMaxEntities = 10_000
)

// keySeparator is between the values of a key. No value has it.
const keySeparator = "\x00"

// Causes of rejects of rows with a key.
const (
	// CauseKey means that the row has no key that can be used.
	CauseKey = "key"
	// CauseEntities means that there are as many entities as the specification allows, and that the
	// row is of another one.
	CauseEntities = "entities"
	// CauseZone means that clocks show the time of the row twice, and that the rows before it do not
	// tell which of the two it is.
	CauseZone = "zone"
)

// KeyValues returns the values of a key in the order of its columns.
func KeyValues(key string) []string { return strings.Split(key, keySeparator) }

// CutKey returns the first value of a key, and the key of the other values.
func CutKey(key string) (value, rest string) {
	value, rest, _ = strings.Cut(key, keySeparator)
	return value, rest
}

// wantKey is the types of a key column, for messages.
const wantKey = "a text, an integer or a boolean"

// keyBuilder makes the key of one row at a time. The zero value is for rows without a key. One
// goroutine uses it.
type keyBuilder struct {
	columns []string
	text    []byte
	failed  bool // the key of the last row cannot be used
}

func (k *keyBuilder) begin() { k.text, k.failed = k.text[:0], false }

// fail marks the row as one without a key, and returns the problem.
func (k *keyBuilder) fail(format string, args ...any) string {
	k.failed = true
	return fmt.Sprintf(format, args...)
}

func (k *keyBuilder) cause() string {
	if k.failed {
		return CauseKey
	}
	return ""
}

// add appends the value of column i, and returns what is wrong with it. size is the bytes of the
// whole value; value may be its start.
func (k *keyBuilder) add(i int, value string, size int) (problem string) {
	switch {
	case value == "":
		return k.fail("key column %q is empty", k.columns[i])
	case len(k.text)+size > MaxKey:
		return k.fail("key column %q: its value of %d bytes, beginning with %s, makes a key of more than %d bytes",
			k.columns[i], size, access.Quote(value), MaxKey)
	case !utf8.ValidString(value):
		return k.fail("key column %q is not valid UTF-8", k.columns[i])
	case strings.Contains(value, keySeparator):
		return k.fail("key column %q has a NUL character", k.columns[i])
	}
	if i > 0 {
		k.text = append(k.text, keySeparator...)
	}
	k.text = append(k.text, value...)
	return ""
}

// key returns the key, after the values of all columns were added.
func (k *keyBuilder) key() string { return string(k.text) }

func (s ColumnSpec) checkKey() error {
	if len(s.Key) > MaxKeyColumns {
		return fmt.Errorf("a key of %d columns: use at most %d", len(s.Key), MaxKeyColumns)
	}
	seen := map[string]bool{s.Timestamp: true}
	for _, f := range s.Features {
		seen[f] = true
	}
	for _, c := range s.Key {
		if c == "" || seen[c] {
			return fmt.Errorf("key column %q is empty or named twice, as a key, a feature or the timestamp", c)
		}
		seen[c] = true
	}
	return nil
}

// CheckKey returns what is wrong with the key and the number of entities of a specification.
// most is the largest number of entities.
func (s ColumnSpec) CheckKey(most int) error {
	switch {
	case len(s.Key) == 0 && s.MaxEntities != 0:
		return fmt.Errorf("max_entities %d: it is for rows with a key: name its columns, or leave it out",
			s.MaxEntities)
	case s.MaxEntities < 0 || s.MaxEntities > most:
		return fmt.Errorf("max_entities %d: use 1 to %d", s.MaxEntities, most)
	}
	return s.checkKey()
}

// Entities returns the largest number of entities, and 0 for rows without a key.
func (s ColumnSpec) Entities() int {
	switch {
	case len(s.Key) == 0:
		return 0
	case s.MaxEntities == 0:
		return DefaultMaxEntities
	}
	return s.MaxEntities
}

// inOrder reports whether a reader rejects rows that go back in time. Rows with a key are in order
// by entity, which the caller of the reader checks.
func (s ColumnSpec) inOrder() bool { return !s.AnyOrder && len(s.Key) == 0 }

// TooMany returns the reason to reject a row of an entity beyond the number that is allowed.
func (s ColumnSpec) TooMany(key string) string {
	return fmt.Sprintf("there are %d entities already, and %s is another one: raise max_entities", s.Entities(),
		access.Quote(EntityName(key)))
}

// EntityName returns the name of the entity of a key for people: the value of its column, or its
// values with commas between them. Different keys have different names.
func EntityName(key string) string {
	if !strings.Contains(key, keySeparator) {
		return key
	}
	values := KeyValues(key)
	for i, v := range values {
		if strings.ContainsAny(v, `,"\`) || strings.TrimSpace(v) != v {
			values[i] = strconv.Quote(v)
		}
	}
	return strings.Join(values, ", ")
}

// JoinKey returns the key with these values.
func JoinKey(values []string) string { return strings.Join(values, keySeparator) }
