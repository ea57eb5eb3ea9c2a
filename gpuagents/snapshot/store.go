// Package snapshot writes the state of a swarm into a store of named objects and reads it again:
// one .npy file for each state variable and run of groups, and a manifest that is written last.
// docs/formats/snapshot.md describes the format. A snapshot does not depend on the pages that it
// was taken from, nor on the device, and two of one state are the same bytes.
package snapshot

import (
	"context"
	"io"
)

// Store keeps objects by name. A name is a path of two parts with '/' between. Methods may be
// called from several goroutines.
type Store interface {
	// Create begins an object. The object exists, whole and durable, when Commit has returned nil;
	// it then replaces an earlier object of the name. Before that, or after an error, there is no
	// new object. The caller ends it with Commit or Abort. The end of ctx makes later calls fail.
	Create(ctx context.Context, name string) (Object, error)
	// Open reads an object from its start; it fails with fs.ErrNotExist when there is none. The
	// caller closes the reader before ctx ends.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Sweep removes the remains of objects below a folder that processes which were killed have
	// left. It leaves objects alone that are being written, also by another process.
	Sweep(ctx context.Context, folder string) error
	// Folders lists the first parts of the names, in any order.
	Folders(ctx context.Context) ([]string, error)
}

// Object is an object that is being written. One goroutine uses it.
type Object interface {
	io.Writer
	Commit() error
	// Abort drops the object. After Commit, or a second time, it does nothing.
	Abort()
}

// Files opens the objects of a store to read them at any place. Its methods may be called from
// several goroutines.
type Files interface {
	// OpenAt opens an object by its name. An object with another length or SHA-256 is an error, and
	// one that does not exist an fs.ErrNotExist. The caller closes it.
	OpenAt(ctx context.Context, name string, bytes int64, sha256 string) (At, error)
}

// At is an object that is read at any place, by several goroutines. A read behind its end is an
// io.EOF.
type At interface {
	io.ReaderAt
	io.Closer
}
