package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
)

// Save writes a snapshot and returns its manifest and digest. The caller sets Name, Swarm, Entry,
// Cell, Seed and Spec of m, and Shard for one of several shards; Save fills in the rest. If there
// is a snapshot of that name with the same swarm, entry and groups, Save returns it and writes
// nothing: the states of one entry are equal. Any other snapshot of the name is an ErrExists.
// Several processes may save the same state at a time, such as a holder of a shard and its
// successor. After an error files without a manifest may be left, which the next Save of the name
// removes.
func Save(ctx context.Context, store Store, m Manifest, p *Pages) (*Manifest, string, error) {
	return save(ctx, store, m, p, FileBytes)
}

func save(ctx context.Context, store Store, m Manifest, p *Pages, fileBytes int) (*Manifest, string, error) {
	there, digest, err := ReadManifest(ctx, store, m.Name)
	switch {
	case err == nil && there.Entry == m.Entry && there.Swarm.same(m.Swarm) && there.Groups == p.Groups &&
		there.First() == p.First:
		return there, digest, nil
	case err == nil:
		return nil, "", fmt.Errorf("snapshot %s: %w: of entry %d of swarm %s", m.Name, ErrExists, there.Entry,
			there.Swarm.ID)
	case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMismatch):
		return nil, "", fmt.Errorf("snapshot %s: %w, and cannot be read: %w", m.Name, ErrExists, err)
	case !errors.Is(err, ErrNotFound):
		return nil, "", err
	}
	if err := store.Sweep(ctx, m.Name); err != nil {
		return nil, "", fmt.Errorf("snapshot %s: remove what an earlier attempt has left: %w", m.Name, err)
	}
	m.Groups = p.Groups
	m.plan(&p.Layout, fileBytes)
	n := workers(p.Layout.PageBytes, m.parts())
	free, release := p.hold(n)
	err = share(ctx, n, m.parts(), func(ctx context.Context, d *desk) func(int) error {
		w := &saver{desk: d, store: store, m: &m, pages: p, page: <-free}
		return func(k int) error { return w.part(ctx, k) }
	})
	if err = errors.Join(err, release()); err != nil {
		return nil, "", fmt.Errorf("snapshot %s: %w", m.Name, err)
	}
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, "", fmt.Errorf("snapshot %s: encode the manifest: %w", m.Name, err)
	}
	o, err := store.Create(ctx, m.Name+"/"+ManifestName)
	if err != nil {
		return nil, "", fmt.Errorf("snapshot %s: %w", m.Name, err)
	}
	defer o.Abort()
	if _, err = o.Write(data); err == nil {
		err = o.Commit()
	}
	if err != nil {
		return nil, "", fmt.Errorf("snapshot %s: write the manifest: %w", m.Name, err)
	}
	return &m, sum(data), nil
}

// saver writes parts one after the other. A part is the files of all variables for some groups.
// Each worker has its own saver.
type saver struct {
	desk  *desk
	store Store
	m     *Manifest
	pages *Pages
	page  []byte
	rows  []byte
}

// part writes the files of part k. It reads each page once, for all variables. Pages are read
// through the desk, because only their owner may read them. After an error the files are dropped.
func (w *saver) part(ctx context.Context, k int) (err error) {
	files := make([]*fileWriter, len(w.m.Variables))
	defer func() {
		for _, f := range files {
			if f != nil {
				f.object.Abort()
			}
		}
	}()
	for v := range files {
		if files[v], err = w.create(ctx, v, k); err != nil {
			return err
		}
	}
	l := &w.pages.Layout
	err = w.pages.visit(w.m.part(k), func(page uint64, s slots, _ int) error {
		if err := w.desk.do(ctx, func() error { return w.pages.Read(page, w.page) }); err != nil {
			return err
		}
		for v, of := range l.Vars {
			n := s.n * rowsPerGroup(of, l.Agents) * rowBytes(of)
			if len(w.rows) < n {
				w.rows = make([]byte, max(n, l.PageBytes))
			}
			extract(l, v, s, w.page, w.rows[:n])
			if _, err := files[v].Write(w.rows[:n]); err != nil {
				return err
			}
		}
		return nil
	})
	for v := 0; v < len(files) && err == nil; v++ {
		w.m.Variables[v].Files[k].SHA256, err = files[v].end() // no other saver has part k
	}
	return err
}

// create creates file k of a variable with its header. The caller ends the file or aborts its
// object.
func (w *saver) create(ctx context.Context, v, k int) (*fileWriter, error) {
	file := w.m.Variables[v].Files[k]
	o, err := w.store.Create(ctx, w.m.Name+"/"+file.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	f := &fileWriter{File: file, object: o, sum: sha256.New(), buf: bufio.NewWriterSize(o, bufferBytes)}
	if _, err := f.Write(w.m.array(v, k).header()); err != nil {
		o.Abort()
		return nil, err
	}
	return f, nil
}

// bufferBytes is the size of the buffer of a file: a variable of groups has few bytes in a page.
const bufferBytes = 256 << 10

type fileWriter struct {
	File
	object  Object
	sum     hash.Hash
	buf     *bufio.Writer
	written int64
}

// Write implements io.Writer.
func (f *fileWriter) Write(p []byte) (int, error) {
	f.sum.Write(p)
	f.written += int64(len(p))
	n, err := f.buf.Write(p)
	if err != nil {
		err = fmt.Errorf("write %s: %w", f.Name, err)
	}
	return n, err
}

// end makes the file durable and returns its SHA-256. A file that does not have the planned length
// is an error.
func (f *fileWriter) end() (string, error) {
	if f.written != f.Bytes {
		return "", fmt.Errorf("%w: %s has %d bytes of %d", errRest, f.Name, f.written, f.Bytes)
	}
	err := f.buf.Flush()
	if err == nil {
		err = f.object.Commit()
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", f.Name, err)
	}
	return hex.EncodeToString(f.sum.Sum(nil)), nil
}
