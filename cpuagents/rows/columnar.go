package rows

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// block is a sequence of rows of a columnar source, column by column. All slices have its number of
// rows. A block belongs to one reader and is filled again and again.
type block struct {
	times  []string // empty for a row without a timestamp
	values [][]float64
	nulls  [][]bool // by feature: true for a row without a value
	// keys has the values of each key column; their nulls are after the nulls of the features.
	// sizes has the bytes of each value. keys has the start of a value of more than MaxKey bytes.
	keys  [][]string
	sizes [][]int
}

// blockRows is the most rows of a block: as many as a batch has at most.
const blockRows = 4096

// reset gives the block n empty rows. It keeps the memory of the block if that is large enough.
// Every timestamp is empty, every value 0 and no value null.
func (b *block) reset(features, keys, n int) {
	b.times = resize(b.times, n)
	if b.values == nil {
		b.values, b.nulls = make([][]float64, features), make([][]bool, features+keys)
		b.keys, b.sizes = make([][]string, keys), make([][]int, keys)
	}
	for i := range b.values {
		b.values[i] = resize(b.values[i], n)
	}
	for i := range b.nulls {
		b.nulls[i] = resize(b.nulls[i], n)
	}
	for i := range b.keys {
		b.keys[i], b.sizes[i] = resize(b.keys[i], n), resize(b.sizes[i], n)
	}
}

// resize returns a slice of n zeros. It uses the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// blockBytes returns the memory of a block in bytes: for each row the header of a text and a short
// text, for each feature a number and whether it is null, and the same again for the buffers from
// which they are decoded. A value of a key has up to MaxKey bytes.
func blockBytes(features, keys int) int64 {
	return blockRows * (48 + 24*int64(features+1) + (MaxKey+64)*int64(keys))
}

// blockReader reads a columnar source block by block. One goroutine uses it. An error without a
// class is damage of the data; see damaged.
type blockReader interface {
	// next fills b with the next rows, at least one. It returns false after the last row.
	next(b *block) (more bool, err error)
	close() error
}

type columnarReader struct {
	name  string
	spec  ColumnSpec
	src   blockReader
	block block
	// at is the next row of block, and number the number of the last row of the source.
	at     int
	number uint64
	clock  Clock
	order  Order
	key    keyBuilder
	// remedy is the cure of the present row, if its problem has one.
	remedy string
}

// openColumnar opens src, and returns the reader of its rows. The reader owns src, which is closed
// after an error.
func openColumnar(name string, spec ColumnSpec, src interface {
	blockReader
	open() error
},
) (Reader, error) {
	if err := src.open(); err != nil {
		_ = src.close()
		return nil, err
	}
	return &columnarReader{name: name, spec: spec, src: src, key: keyBuilder{columns: spec.Key}}, nil
}

func (r *columnarReader) Close() error { return r.src.close() }

// Next implements Reader. After an error the block is empty, so the next call asks the source
// again, which is at its end.
func (r *columnarReader) Next() (Row, *Reject, error) {
	if r.at == len(r.block.times) {
		r.at = 0
		more, err := r.fill()
		if err == nil && !more {
			err = io.EOF
		}
		if err != nil {
			r.block.times = r.block.times[:0]
			return Row{}, nil, err
		}
	}
	i := r.at
	r.at++
	r.number++
	r.key.begin()
	r.remedy = ""
	out, problem := r.row(i)
	if problem != "" {
		return Row{}, &Reject{Series: r.name, Row: r.number, Reason: problem, Cure: r.remedy, Cause: r.key.cause()}, nil
	}
	return out, nil, nil
}

// fill reads a block. The libraries panic on some damage that the checks before them do not find;
// fill returns that as an error.
func (r *columnarReader) fill() (more bool, err error) {
	defer damaged(r.name, &err)
	return r.src.next(&r.block)
}

// damaged is deferred: it turns a panic, and an error without a class, into an error of the data.
// It keeps an error that has a class.
func damaged(name string, err *error) {
	if p := recover(); p != nil {
		cause, is := p.(error)
		if !is {
			cause = fmt.Errorf("%v", p)
		}
		*err = cause
	}
	// The libraries have no classes of errors. What the checks before them have let pass is damage.
	if *err != nil && !access.Classified(*err) {
		*err = access.InputError("%s: the file is damaged: %v", name, *err)
	}
}

// row returns row i of the block, or what is wrong with it. The row has new slices, because next
// overwrites the block.
func (r *columnarReader) row(i int) (Row, string) {
	out := Row{
		Number:    r.number,
		Timestamp: r.block.times[i],
		Features:  make([]float32, len(r.spec.Features)),
		Values:    make([]float64, len(r.spec.Features)),
	}
	if r.spec.Timestamp != "" {
		if out.Timestamp == "" {
			return Row{}, "its timestamp is null or empty"
		}
		if problem := r.clock.stamp(&out); problem != "" {
			return Row{}, problem
		}
	}
	for k, name := range r.spec.Key {
		if r.block.nulls[len(r.spec.Features)+k][i] {
			return Row{}, r.key.fail("key column %q is null", name)
		}
		if problem := r.key.add(k, r.block.keys[k][i], r.block.sizes[k][i]); problem != "" {
			return Row{}, problem
		}
	}
	out.Key = r.key.key()
	for f, name := range r.spec.Features {
		v := r.block.values[f][i]
		if r.spec.blank(f) && (r.block.nulls[f][i] || math.IsNaN(v)) {
			out.Values[f], out.Features[f] = math.NaN(), float32(math.NaN())
			continue
		}
		if r.block.nulls[f][i] {
			return Row{}, fmt.Sprintf("column %q is null", name)
		}
		if problem := CheckFeature(name, v); problem != "" {
			return Row{}, problem
		}
		out.Values[f] = v
		out.Features[f] = float32(v)
	}
	if problem := r.order.admit(r.spec, &out, &r.remedy); problem != "" {
		return Row{}, problem
	}
	return out, ""
}

// Find returns the positions of the wanted columns among names: of the timestamp, then of the
// features, then of the key. A column that is missing or appears twice is an error, which names the
// file. The error proposes a cure, such as another delimiter or another name.
func (s ColumnSpec) Find(file string, names []string) (at []int, err error) {
	for _, want := range s.columns() {
		found := -1
		for i, n := range names {
			if n != want {
				continue
			}
			if found >= 0 {
				return nil, access.InputError("%s: column %q appears twice: rename one of them", file, want)
			}
			found = i
		}
		if found < 0 && len(names) == 1 && strings.ContainsAny(names[0], ";\t|") {
			return nil, access.InputError(
				"%s: the whole first line is one column, %q: fields must be separated by commas, and numbers have a "+
					"point: convert the file",
				file, names[0],
			)
		}
		if found < 0 {
			return nil, access.InputError(
				"%s: no column %q; the file has %s: name the columns in the swarm spec (%s)",
				file,
				want,
				quoteAll(names),
				s.setting(want),
			)
		}
		at = append(at, found)
	}
	return at, nil
}

// setting returns the setting of the specification that names a column, for messages.
func (s ColumnSpec) setting(column string) string {
	switch {
	case s.Settings[column] != "":
		return s.Settings[column] + ": COLUMN"
	case slices.Contains(s.Key, column):
		return "key: COLUMN"
	case column == s.Timestamp:
		return "timestamp: COLUMN"
	}
	return "features: [COLUMN]"
}

func wrongType(file, column, got, want string) error {
	return access.InputError(
		"%s: column %q is %s, not %s: convert it or name another one in the swarm spec", file, column, got, want,
	)
}

// What a column must be, for messages.
const (
	wantNumber = "a number of 8 to 64 bits"
	wantTime   = "a time, a date, a text or a number"
)
