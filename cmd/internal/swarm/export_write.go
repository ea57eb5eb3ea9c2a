package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// errFormat is wrapped by errors of files that are neither NumPy's nor Arrow's.
var errFormat = errors.New("no such format")

type fileFormat string

// Formats.
const (
	npyFormat   fileFormat = "npy"   // NumPy, version 1.0: the numbers alone, of shape [rows, width]
	arrowFormat fileFormat = "arrow" // an Arrow IPC file with ids and keys, in batches of BatchRows
)

// fileFormatOf returns the format of a file by its extension; errFormat for any other extension.
func fileFormatOf(path string) (fileFormat, error) {
	switch ext := filepath.Ext(path); ext {
	case ".npy", ".arrow":
		return fileFormat(ext[1:]), nil
	default:
		return "", fmt.Errorf("%s: %w: use .npy or .arrow", path, errFormat)
	}
}

type keyColumns interface {
	// Columns returns the names of the key columns.
	Columns() []string
	// Values appends the values of the key of a group, in the order of the columns, and returns
	// false if the group has no entity.
	Values(to []string, group int) ([]string, bool)
}

// variableOptions choose what writeVariable writes.
type variableOptions struct {
	Variable string // of the cell (docs/cells.md)
	Format   fileFormat
	Keys     keyColumns // nil: there are none; formats without texts leave them out
}

type variableInfo struct {
	Variable string // its name
	DType    string // of the elements in the file: float32, uint32, uint64, int64 or uint8
	Per      string // agent or group: what has a row
	Rows     int64
	Width    int // elements a row
}

// writeVariable writes a table of a variable of a snapshot to w. parts come from snapshot.ReadSet.
// Rows are in the order of the ids of the swarm; bfloat16 becomes float32. The checksums of the
// files are compared on the way: after an error the content of w is invalid. An unknown variable is
// a snapshot.ErrVariable.
//
// A file of NumPy is written by several goroutines if w is an io.WriterAt, which must then be empty
// and take bytes at any offset, as a regular file that is not open for appending does.
func writeVariable(
	ctx context.Context,
	store snapshot.Store,
	parts []*snapshot.Manifest,
	o variableOptions,
	w io.Writer,
) (variableInfo, error) {
	of, err := parts[0].Find(o.Variable)
	if err != nil {
		return variableInfo{}, err
	}
	r := variableInfo{Variable: of.Name, DType: of.DType, Per: of.Per, Width: of.Width}
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
	var out tableFile
	switch o.Format {
	case npyFormat:
		out, err = newNpy(w, r)
	case arrowFormat:
		out, err = newArrow(w, r, parts[0], o.Keys)
	default:
		err = fmt.Errorf("%q: %w", o.Format, errFormat)
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

// writers is the number of files of a snapshot that are read at a time. SHA-256 takes a core for
// each.
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

// tableFile is a file that is being written.
type tableFile interface {
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

func elementBytes(dtype string) int {
	switch dtype {
	case "uint64", "int64":
		return 8
	case "uint8":
		return 1
	}
	return 4
}

func bytesOf(v []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
