package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	badgertable "github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Badger keeps tables in BadgerDB, each in a directory of its own.
type Badger struct{}

var _ Backend = Badger{}

// Sizes of a table's files and memory. A transaction holds about 13,000 entries with memtables of
// this size.
const (
	memTableBytes = 8 << 20
	memTables     = 2
)

// badgerOptions keep memory bounded (two memtables, no caches: tables are mapped and not
// compressed) and every transaction synced.
func badgerOptions(path string) badger.Options {
	return badger.DefaultOptions(path).
		WithSyncWrites(true).
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithDetectConflicts(false). // There is one writer.
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithMemTableSize(memTableBytes).
		WithNumMemtables(memTables).
		WithBaseTableSize(memTableBytes).
		WithValueLogFileSize(1 << 20). // Every value is below the threshold, so nothing is in it.
		WithValueThreshold(1 << 10).
		WithNumCompactors(2).
		WithBloomFalsePositive(0). // Keys are read in order only.
		WithChecksumVerificationMode(options.OnBlockRead)
}

// Reserve implements Backend: the logs of the memtables, twice as long as these, the value log, and
// tables that are being merged.
func (Badger) Reserve(entries int64) int64 {
	return (memTables+1)*2*memTableBytes + 8<<20 + entries*250
}

// Headroom implements Backend: the log of a memtable, twice as long as this, and the value log.
func (Badger) Headroom() int64 { return 2*memTableBytes + 8<<20 }

// List implements Backend. Tables are folders with the extension TableExt. Other files are left
// out.
func (Badger) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && filepath.Ext(e.Name()) == TableExt {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove implements Backend. No process has the table open.
func (Badger) Remove(path string) error { return os.RemoveAll(path) }

// Open implements Backend. Badger ends the process on some kinds of damage, or leaves a table out,
// so its files are read here first.
func (Badger) Open(path string, create bool) (Table, error) {
	if create {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
	} else if err := checkFiles(path); err != nil {
		return nil, err
	}
	db, err := guard(func() (*badger.DB, error) { return badger.Open(badgerOptions(path)) })
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if create { // Its directory must be durable before a seal names it.
		if err := (vfs.OS{}).SyncDir(path); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return &badgerTable{db: db, path: path}, nil
}

// guard turns a panic into an error: Badger has some for bytes that it did not expect.
func guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("badger: %v: %w", r, tiers.ErrCorrupt)
		}
	}()
	return f()
}

// checkFiles reads the sorted tables whole, one on each processor, and checks every checksum in
// them.
func checkFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(entries))
	slot := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, e := range entries {
		if filepath.Ext(e.Name()) != ".sst" {
			continue
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			if err := checkSorted(filepath.Join(dir, e.Name())); err != nil {
				errs[i] = fmt.Errorf("%s: %w", e.Name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// checkSorted reads one table. Its lengths come first, since Badger ends the process where they
// lead out of the file.
func checkSorted(path string) error {
	f, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	keep := func() error { return f.Close(-1) }
	corrupt := fmt.Errorf("lengths at the end: %w", tiers.ErrCorrupt)
	at := uint64(len(f.Data))
	for range 2 { // The checksum with its length behind it, and the index with its own.
		if at < 4 {
			return errors.Join(corrupt, keep())
		}
		at -= 4
		n := uint64(binary.BigEndian.Uint32(f.Data[at:]))
		if n > at || n == 0 {
			return errors.Join(corrupt, keep())
		}
		at -= n
	}
	_, err = guard(func() (struct{}, error) {
		t, err := badgertable.OpenTable(f, badgertable.Options{
			ReadOnly: true, BlockSize: 4 << 10, ChkMode: options.OnTableAndBlockRead, Compression: options.None,
		})
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.VerifyChecksum()
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", tiers.ErrCorrupt, err)
	}
	return errors.Join(err, keep())
}

// badgerTable is one open database. failed is the error of the first Apply that failed; all later
// ones return it.
type badgerTable struct {
	db     *badger.DB
	path   string
	failed error
	close  sync.Once
}

// loadBatch is how many keys Load hands over at a time.
const loadBatch = 4096

// batchOfKeys are keys and values, one after the other.
type batchOfKeys struct {
	bytes []byte
	ends  []int // of a key, of its value, and so on
}

// Load implements Table. Several of BadgerDB's iterators run beside f, each over a range of the
// keys.
func (t *badgerTable) Load(f func(key, value []byte) error) error {
	bounds := t.bounds(runtime.GOMAXPROCS(0))
	full, empty, stop := make(chan *batchOfKeys, 2*len(bounds)), make(chan *batchOfKeys, 4*len(bounds)),
		make(chan struct{})
	for range cap(empty) {
		empty <- &batchOfKeys{}
	}
	var readers sync.WaitGroup
	readErrs := make([]error, len(bounds))
	for i, from := range bounds {
		var to []byte
		if i+1 < len(bounds) {
			to = bounds[i+1]
		}
		readers.Go(func() {
			_, readErrs[i] = guard(func() (struct{}, error) { return struct{}{}, t.read(from, to, full, empty, stop) })
		})
	}
	go func() {
		readers.Wait()
		close(full)
	}()
	var err error
	for b := range full {
		at := 0
		for i := 0; i < len(b.ends) && err == nil; i += 2 {
			key, value := b.bytes[at:b.ends[i]], b.bytes[b.ends[i]:b.ends[i+1]]
			at = b.ends[i+1]
			if err = f(key, value); err != nil {
				close(stop)
			}
		}
		b.bytes, b.ends = b.bytes[:0], b.ends[:0]
		empty <- b
	}
	return errors.Join(append(readErrs, err)...)
}

// bounds are the keys at which up to n ranges of about as many sorted tables begin; the first is
// nil, the beginning.
func (t *badgerTable) bounds(n int) [][]byte {
	var starts [][]byte
	for _, info := range t.db.Tables() {
		if n := len(info.Left) - 8; n > 0 { // A version follows the key.
			starts = append(starts, slices.Clone(info.Left[:n]))
		}
	}
	slices.SortFunc(starts, bytes.Compare)
	bounds := [][]byte{nil}
	for i := 1; i < n; i++ {
		if at := i * len(starts) / n; at < len(starts) && bytes.Compare(starts[at], bounds[len(bounds)-1]) > 0 {
			bounds = append(bounds, starts[at])
		}
	}
	return bounds
}

// read fills empty batches with all keys from one on, in order, up to another where there is one,
// until stop.
func (t *badgerTable) read(from, to []byte, full, empty chan *batchOfKeys, stop chan struct{}) error {
	return t.db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false // They are in the tables, beside the keys.
		it := txn.NewIterator(o)
		defer it.Close()
		b := <-empty
		for it.Seek(from); it.Valid(); it.Next() {
			item := it.Item()
			if to != nil && bytes.Compare(item.Key(), to) >= 0 {
				break
			}
			b.bytes = append(b.bytes, item.Key()...)
			b.ends = append(b.ends, len(b.bytes))
			if err := item.Value(func(v []byte) error { b.bytes = append(b.bytes, v...); return nil }); err != nil {
				return err
			}
			b.ends = append(b.ends, len(b.bytes))
			if len(b.ends) == 2*loadBatch {
				select {
				case full <- b:
				case <-stop:
					return nil
				}
				b = <-empty
			}
		}
		select {
		case full <- b:
		case <-stop:
		}
		return nil
	})
}

// Apply implements Table.
func (t *badgerTable) Apply(ops []Op) error {
	if t.failed != nil {
		return t.failed
	}
	_, err := guard(func() (struct{}, error) { return struct{}{}, t.apply(ops) })
	t.failed = err
	return err
}

// apply splits ops into as many transactions as their size needs, in order.
func (t *badgerTable) apply(ops []Op) error {
	txn := t.db.NewTransaction(true)
	defer func() { txn.Discard() }()
	one := func(op Op) error {
		if op.Value == nil {
			return txn.Delete(op.Key)
		}
		return txn.SetEntry(badger.NewEntry(op.Key, op.Value))
	}
	for _, op := range ops {
		err := one(op)
		if errors.Is(err, badger.ErrTxnTooBig) {
			if err := txn.Commit(); err != nil {
				return err
			}
			txn = t.db.NewTransaction(true)
			err = one(op)
		}
		if err != nil {
			return err
		}
	}
	return txn.Commit()
}

// Bytes implements Table.
func (t *badgerTable) Bytes() (n int64) {
	entries, err := os.ReadDir(t.path)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasSuffix(e.Name(), ".lock") {
			n += info.Size()
		}
	}
	return n
}

// Close implements Table. A second call does nothing and returns nil.
func (t *badgerTable) Close() (err error) {
	t.close.Do(func() {
		_, err = guard(func() (struct{}, error) { return struct{}{}, t.db.Close() })
		if errors.Is(err, fs.ErrClosed) {
			err = nil
		}
	})
	return err
}
