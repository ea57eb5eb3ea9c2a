package tierstest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"path/filepath"

	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// maxOps is how many changes a transaction takes; few, so that commits of several transactions are
// common.
const maxOps = 3

// Backend keeps tables in files of FS, so that crashes, faults and flipped bits of the test's file
// system reach them. It promises what index.Table asks and nothing more: a synced transaction is
// all or nothing, an unsynced one may vanish, and damage silently ends the table, as in Badger's
// own log.
type Backend struct{ FS vfs.FS }

var _ index.Backend = Backend{}

type table struct {
	file   vfs.File
	end    int64
	seq    uint32
	failed error
}

// Open implements index.Backend.
func (b Backend) Open(path string, create bool, _ int64) (index.Table, error) {
	var mode vfs.Mode
	if create {
		mode = vfs.Create
	}
	f, err := b.FS.Open(path, mode)
	if err != nil {
		return nil, err
	}
	t := &table{file: f}
	if err := t.replay(func(index.Op) {}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// List implements index.Backend.
func (b Backend) List(dir string) ([]string, error) {
	names, err := b.FS.List(dir)
	var tables []string
	for _, name := range names {
		if filepath.Ext(name) == index.TableExt {
			tables = append(tables, name)
		}
	}
	return tables, err
}

// Remove implements index.Backend.
func (b Backend) Remove(path string) error {
	if err := b.FS.Remove(path); err != nil {
		return err
	}
	return b.FS.SyncDir(filepath.Dir(path))
}

// Reserve implements index.Backend.
func (Backend) Reserve(entries int64) int64 { return 256<<10 + entries*128 }

// AtRest implements index.Backend.
func (b Backend) AtRest(entries int64) int64 { return b.Reserve(entries) }

// Headroom implements index.Backend.
func (Backend) Headroom(int64) int64 { return 0 }

// A transaction is a header (length, CRC32 of the rest, number, count of changes) and its changes
// (length of the key, length of the value plus one or 0 for a removal, key, value).
const headerBytes = 16

// replay reads the transactions up to the end or the first one that is not whole.
func (t *table) replay(f func(index.Op)) error {
	size, err := t.file.Size()
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if size > 0 {
		if _, err := t.file.ReadAt(b, 0); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	t.end, t.seq = 0, 0
	for rest := b; len(rest) >= headerBytes; rest = b[t.end:] {
		n := int(le.Uint32(rest))
		if n < headerBytes || n > len(rest) || crc32.ChecksumIEEE(rest[8:n]) != le.Uint32(rest[4:]) ||
			le.Uint32(rest[8:]) != t.seq {
			break
		}
		at := rest[headerBytes:n]
		for range le.Uint32(rest[12:]) {
			key, value := int(le.Uint32(at)), int(le.Uint32(at[4:]))-1
			op := index.Op{Key: at[8 : 8+key]}
			at = at[8+key:]
			if value >= 0 {
				op.Value, at = at[:value], at[value:]
			}
			f(op)
		}
		t.end += int64(n)
		t.seq++
	}
	return nil
}

func (t *table) Load(f func(key, value []byte) error) error {
	all := map[string][]byte{}
	err := t.replay(func(op index.Op) {
		if op.Value == nil {
			delete(all, string(op.Key))
		} else {
			all[string(op.Key)] = op.Value
		}
	})
	if err != nil {
		return err
	}
	for k, v := range maps.All(all) {
		if err := f([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

// Rest implements index.Table: it has nothing but its file.
func (*table) Rest() error { return nil }

func (t *table) Apply(ops []index.Op, _ int64) error {
	for len(ops) > 0 && t.failed == nil {
		n := min(len(ops), maxOps)
		t.failed = t.transaction(ops[:n])
		ops = ops[n:]
	}
	return t.failed
}

func (t *table) transaction(ops []index.Op) error {
	le := binary.LittleEndian
	b := make([]byte, headerBytes)
	for _, op := range ops {
		b = le.AppendUint32(b, uint32(len(op.Key)))
		if op.Value == nil {
			b = le.AppendUint32(b, 0)
		} else {
			b = le.AppendUint32(b, uint32(len(op.Value)+1))
		}
		b = append(append(b, op.Key...), op.Value...)
	}
	le.PutUint32(b, uint32(len(b)))
	le.PutUint32(b[8:], t.seq)
	le.PutUint32(b[12:], uint32(len(ops)))
	le.PutUint32(b[4:], crc32.ChecksumIEEE(b[8:]))
	if _, err := t.file.WriteAt(b, t.end); err != nil {
		return err
	}
	t.end += int64(len(b))
	t.seq++
	return t.file.Sync()
}

func (t *table) Bytes() int64 { return t.end }

func (t *table) Close() error { return t.file.Close() }
