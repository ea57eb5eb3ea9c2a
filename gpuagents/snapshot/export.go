package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Find returns the variable of a name. ErrVariable: there is none; the error lists all names.
func (m *Manifest) Find(name string) (Variable, error) {
	var names []string
	for _, v := range m.Variables {
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	return Variable{}, fmt.Errorf("snapshot %s: variable %q: %w: it has %s", m.Name, name, ErrVariable,
		strings.Join(names, ", "))
}

// RowBytes returns the length of a row of a variable in a file in bytes.
func (v Variable) RowBytes() int {
	elem, _ := elemOf(v.DType)
	return v.Width * elem.Bytes()
}

// readBytes is the target size of the rows of one call of fn.
const readBytes = 1 << 20

// ReadRows reads one variable of the parts of a snapshot, as ReadSet returns them, and calls fn
// with whole rows, little-endian, from the first agent or group of the swarm to the last. fn must
// not keep the slice. It uses two buffers of 1 MiB, or of a longer row: the next rows are read and
// added to the checksum while fn has the previous ones.
//
// A checksum is compared at the end of its file, so fn may have seen damaged rows before an error.
func ReadRows(ctx context.Context, store Store, parts []*Manifest, name string, fn func(rows []byte) error) error {
	return ReadRowsAt(ctx, store, parts, name, 1, func(_ int64, rows []byte) error { return fn(rows) })
}

// ReadRowsAt is ReadRows for a caller that takes rows in any order: up to workers files are read at
// a time, and fn is called from as many goroutines, with the number of the first row. One worker
// reads the rows in order. Each worker uses the memory of ReadRows. Every row is given once, unless
// there is an error.
func ReadRowsAt(ctx context.Context, store Store, parts []*Manifest, name string, workers int,
	fn func(first int64, rows []byte) error,
) error {
	type file struct {
		m     *Manifest
		k     int
		first int64
	}
	var files []file
	first, rowBytes := int64(0), 0
	for _, m := range parts {
		of, err := m.Find(name)
		if err != nil {
			return err
		}
		rowBytes = of.RowBytes()
		for k, f := range of.Files {
			files = append(files, file{m, k, first})
			first += f.Rows
		}
	}
	if len(files) == 0 {
		return nil
	}
	return share(ctx, max(1, min(workers, len(files))), len(files), func(ctx context.Context, _ *desk) func(int) error {
		n := rowBytes * max(1, readBytes/rowBytes)
		buffers := [2][]byte{make([]byte, n), make([]byte, n)}
		return func(i int) error {
			f := files[i]
			at := f.first
			err := readFile(ctx, store, f.m, name, f.k, buffers, func(rows []byte) error {
				from := at
				at += int64(len(rows) / rowBytes)
				return fn(from, rows)
			})
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", f.m.Name, err)
			}
			return nil
		}
	})
}

// readFile reads the rows of file k of a variable. A goroutine reads into one of the buffers while
// fn has the other; it has ended when readFile returns.
func readFile(ctx context.Context, store Store, m *Manifest, name string, k int, buffers [2][]byte,
	fn func([]byte) error,
) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v := 0
	for m.Variables[v].Name != name {
		v++
	}
	f, err := (&loader{store: store, m: m}).open(ctx, v, k)
	if err != nil {
		return err
	}
	full, free, ended := make(chan []byte), make(chan []byte, len(buffers)), make(chan error, 1)
	for _, b := range buffers {
		free <- b
	}
	go func() {
		defer close(full)
		ended <- func() error {
			for left := f.Bytes - f.seen; left > 0; {
				var b []byte
				select {
				case b = <-free:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				b = b[:min(int64(cap(b)), left)]
				if err := f.full(b); err != nil {
					return err
				}
				left -= int64(len(b))
				select {
				case full <- b:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return f.end(make([]byte, 1))
		}()
	}()
	for b := range full {
		if err = fn(b); err != nil {
			cancel()
			break
		}
		free <- b
	}
	if read := <-ended; err == nil {
		err = read
	}
	return errors.Join(err, f.close())
}
