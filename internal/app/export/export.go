// Package export writes one state variable of all agents or groups of a swarm as a table, to a file
// of NumPy or Arrow. It reads the variable out of a snapshot, a piece at a time, so that its memory
// does not depend on the swarm. A Recording has such variables over time.
package export

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// Format is a form of files.
type Format string

// Formats.
const (
	Npy   Format = "npy"   // NumPy, version 1.0: the numbers alone, of shape [rows, width]
	Arrow Format = "arrow" // an Arrow IPC file with ids and keys, in batches of BatchRows
)

// FormatOf returns the format of a file by its extension; an ErrFormat for any other.
func FormatOf(path string) (Format, error) {
	switch ext := filepath.Ext(path); ext {
	case ".npy", ".arrow":
		return Format(ext[1:]), nil
	default:
		return "", fmt.Errorf("%s: %w: use .npy or .arrow", path, ErrFormat)
	}
}

// Keys are the keys of the entities of a swarm.
type Keys interface {
	// Columns returns the names of the key columns.
	Columns() []string
	// Values appends the values of the key of a group, in the order of the columns, and returns
	// false if the group has no entity.
	Values(to []string, group int) ([]string, bool)
}

// Options choose what Write writes.
type Options struct {
	Variable string // of the cell (docs/cells.md)
	Format   Format
	Keys     Keys // nil: there are none; formats without texts leave them out
}

// Result describes a table.
type Result struct {
	Variable string // its name
	DType    string // of the elements in the file: float32, uint32, uint64, int64 or uint8
	Per      string // agent or group: what has a row
	Rows     int64
	Width    int // elements a row
}

// Write writes a table of a variable of a snapshot, whose parts are those of snapshot.ReadSet, to w.
// Rows are in the order of the ids of the swarm; bfloat16 becomes float32. The checksums of the files
// are compared on the way: after an error nothing of w is to be used. A name of no variable is a
// snapshot.ErrVariable.
//
// A file of NumPy is written by several goroutines if w is an io.WriterAt, which then has to be empty and
// to take bytes at any place, as a regular file that is not open for appending.
func Write(ctx context.Context, store snapshot.Store, parts []*snapshot.Manifest, o Options, w io.Writer,
) (Result, error) {
	of, err := parts[0].Find(o.Variable)
	if err != nil {
		return Result{}, err
	}
	r := Result{Variable: of.Name, DType: of.DType, Per: of.Per, Width: of.Width}
	for _, m := range parts {
		v, err := m.Find(o.Variable)
		if err != nil {
			return r, err
		}
		for _, f := range v.Files {
			r.Rows += f.Rows
		}
	}
	wide := r.DType == "bfloat16"
	if wide {
		r.DType = "float32"
	}
	var out table
	switch o.Format {
	case Npy:
		out, err = newNpy(w, r)
	case Arrow:
		out, err = newArrow(w, r, parts[0], o.Keys)
	default:
		err = fmt.Errorf("%q: %w", o.Format, ErrFormat)
	}
	if err != nil {
		return r, err
	}
	if n, ok := out.(npyFile); ok {
		if at, ok := w.(io.WriterAt); ok {
			p := placed{at, n.header, int64(r.Width * elementBytes(r.DType))}
			return r, writeAt(ctx, store, parts, o.Variable, wide, p)
		}
	}
	var floats []byte
	err = snapshot.ReadRows(ctx, store, parts, o.Variable, func(rows []byte) error {
		if wide {
			floats = widen(floats, rows)
			rows = floats
		}
		return out.write(rows)
	})
	if err != nil {
		return r, err
	}
	return r, out.close()
}

// placed is a file in which row i begins at byte header + i*rowBytes.
type placed struct {
	to               io.WriterAt
	header, rowBytes int64
}

// writers is how many files of a snapshot are read at a time, of which SHA-256 takes a core each.
func writers() int { return min(16, runtime.GOMAXPROCS(0)) }

// writeAt writes the rows of a variable, of bfloat16 if wide is set, to their places.
func writeAt(ctx context.Context, store snapshot.Store, parts []*snapshot.Manifest, name string, wide bool, p placed,
) error {
	var floats sync.Pool // of *[]byte, one for each writer
	return snapshot.ReadRowsAt(ctx, store, parts, name, writers(), func(first int64, rows []byte) error {
		if wide {
			b, _ := floats.Get().(*[]byte)
			if b == nil {
				b = new([]byte)
			}
			defer floats.Put(b)
			*b = widen(*b, rows)
			rows = *b
		}
		_, err := p.to.WriteAt(rows, p.header+first*p.rowBytes)
		return err
	})
}

// table is a file that is being written.
type table interface {
	// write appends whole rows, and does not keep them.
	write(rows []byte) error
	// close ends the file. It is not called after an error.
	close() error
}

// widen returns numbers of bfloat16 as float32, in to where that has room.
func widen(to, from []byte) []byte {
	if cap(to) < 2*len(from) {
		to = make([]byte, 2*len(from))
	}
	to = to[:2*len(from)]
	for i := 0; i < len(from); i += 2 {
		to[2*i], to[2*i+1], to[2*i+2], to[2*i+3] = 0, 0, from[i], from[i+1]
	}
	return to
}

// elementBytes returns the length of an element of a table.
func elementBytes(dtype string) int {
	switch dtype {
	case "uint64", "int64":
		return 8
	case "uint8":
		return 1
	}
	return 4
}

// bytesOf returns the memory of numbers.
func bytesOf(v []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
