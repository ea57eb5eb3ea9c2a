package index

import (
	"bytes"
	"cmp"
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
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	badgertable "github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Badger keeps tables in BadgerDB, each in a directory of its own. A database has a dozen
// goroutines and memory for its memtables, so an unused one is closed after a while, and opened
// again by the next Apply.
type Badger struct {
	// Rest is the time without use after which a database is closed; 0 means 15 s: a shard that
	// makes a checkpoint every 10 s keeps its database open.
	Rest time.Duration
}

var _ Backend = Badger{}

// Sizes of a table's files and memory. Memtables grow with the table: of a full one BadgerDB makes
// a file, which it syncs and merges. A transaction holds about 13,000 entries with the largest and
// 100 with the least.
const (
	leastMemTable  = 64 << 10
	mostMemTable   = 8 << 20
	memTableEntry  = 640 // bytes of a memtable for each entry, so that a transaction holds them all
	memTables      = 1
	logBytes       = 1 << 20 // of the value log, the least that BadgerDB takes; it is empty
	discardBytes   = 1 << 20 // of the file DISCARD, which BadgerDB makes
	otherBytes     = 48 << 10
	entryBytesDisk = 250      // of an entry in sorted tables, while they are merged
	mostAtRest     = 16 << 20 // longer tables stay open: they are read whole when they are opened
)

// memTableFor returns the size of the memtables of a table with a number of entries: a power of
// two.
func memTableFor(entries int64) int64 {
	n := int64(leastMemTable)
	for n < mostMemTable && n < entries*memTableEntry {
		n *= 2
	}
	return n
}

// badgerOptions keep memory bounded (no caches: tables are mapped and not compressed) and every
// transaction synced.
func badgerOptions(path string, memTableBytes int64) badger.Options {
	return badger.DefaultOptions(path).
		WithSyncWrites(true).
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithDetectConflicts(false). // There is one writer.
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithMemTableSize(memTableBytes).
		WithNumMemtables(memTables).
		WithBaseTableSize(max(memTableBytes, 256<<10)).
		WithValueLogFileSize(logBytes). // Every value is below the threshold, so nothing is in it.
		WithValueThreshold(1 << 10).
		WithNumCompactors(2).
		WithBloomFalsePositive(0). // Keys are read in order only.
		WithChecksumVerificationMode(options.OnBlockRead)
}

// Reserve implements Backend: the logs of the memtables, twice as long as these, the value log,
// which is mapped at twice its size, and tables that are being merged.
func (b Badger) Reserve(entries int64) int64 {
	return (memTables+1)*2*memTableFor(entries) + 2*logBytes + discardBytes + b.AtRest(entries)
}

// AtRest implements Backend: sorted tables.
func (Badger) AtRest(entries int64) int64 { return otherBytes + entries*entryBytesDisk }

// Headroom implements Backend: the log of a memtable, twice as long as this, and the value log.
func (Badger) Headroom(entries int64) int64 {
	return 2*memTableFor(entries) + 2*logBytes + discardBytes
}

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
func (b Badger) Open(path string, create bool, entries int64) (Table, error) {
	if create {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
	}
	t := &badgerTable{path: path, idle: cmp.Or(b.Rest, 15*time.Second)}
	if err := t.wake(memTableFor(entries)); err != nil {
		return nil, err
	}
	if create { // Its directory must be durable before a seal names it.
		if err := (vfs.OS{}).SyncDir(path); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// guard turns a panic of Badger, which unexpected bytes cause, into an error.
func guard(f func() error) (err error) {
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
	err = guard(func() error {
		t, err := badgertable.OpenTable(f, badgertable.Options{
			ReadOnly: true, BlockSize: 4 << 10, ChkMode: options.OnTableAndBlockRead, Compression: options.None,
		})
		if err != nil {
			return err
		}
		return t.VerifyChecksum()
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", tiers.ErrCorrupt, err)
	}
	return errors.Join(err, keep())
}

// badgerTable is one database. It is open while it is used and for some time after. failed is the
// error of the first failed Apply, or of a mapped file without room; later calls return it.
type badgerTable struct {
	path string
	idle time.Duration

	mu       sync.Mutex
	db       *badger.DB // nil: closed while idle
	memTable int64      // of the open database
	rest     *time.Timer
	used     time.Time
	faults   uint64 // MapFaults when the database was opened
	failed   error
	closed   bool
}

// checked returns the error of a call, or the table's failure if a write to a mapped file found no
// room since the database was opened. The write may come from a goroutine of Badger, or from
// another table. The lost page is unknown, so no table that was open then is trusted. A full disk
// is tiers.ErrFull. mu is held.
func (t *badgerTable) checked(call string, err error) error {
	if n := MapFaults() - t.faults; n > 0 {
		// Errors of Badger, such as corrupt files, come from pages that were never written.
		err = fmt.Errorf("the disk had no room for %d pages of mapped files: %w", n, tiers.ErrFull)
	}
	if err == nil {
		return nil
	}
	full := errors.Is(err, tiers.ErrFull)
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if !full && strings.Contains(err.Error(), e.Error()) { // Badger does not wrap it.
			err, full = fmt.Errorf("%w: %w", tiers.ErrFull, err), true
		}
	}
	err = fmt.Errorf("%s %s: %w", call, t.path, err)
	if full && t.failed == nil {
		t.failed = err
	}
	return err
}

// wake opens the database with memtables of at least memTable bytes. mu is held, or no other
// goroutine has the table.
func (t *badgerTable) wake(memTable int64) error {
	if t.closed {
		return tiers.ErrClosed
	}
	if t.db != nil && t.memTable < memTable {
		if err := t.sleep(); err != nil {
			return err
		}
	}
	if t.db != nil {
		t.used = time.Now()
		return nil
	}
	if err := InstallMapFault(); err != nil {
		return err
	}
	t.faults = MapFaults()
	if err := t.checked("read", checkFiles(t.path)); err != nil {
		return err
	}
	// After a kill the log is up to twice as long as its memtable, which must hold all of it.
	logs, err := filepath.Glob(filepath.Join(t.path, "*.mem"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		if info, err := os.Stat(log); err == nil {
			memTable = max(memTable, min(info.Size()/2, mostMemTable))
		}
	}
	var db *badger.DB
	err = guard(func() (err error) {
		db, err = badger.Open(badgerOptions(t.path, memTable))
		return err
	})
	if err != nil {
		return t.checked("open", err)
	}
	t.db, t.memTable, t.used = db, memTable, time.Now()
	if err := t.checked("open", nil); err != nil {
		_ = t.sleep() // It fails for the same reason.
		return err
	}
	if t.rest == nil {
		t.rest = time.AfterFunc(t.idle, t.tire)
	} else {
		t.rest.Reset(t.idle)
	}
	return nil
}

// tire closes the database if it was not used for some time.
func (t *badgerTable) tire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.db == nil {
		return
	}
	if left := t.idle - time.Since(t.used); left > 0 || t.bytes() > mostAtRest {
		t.rest.Reset(max(left, t.idle/2))
		return
	}
	if err := t.sleep(); err != nil && t.failed == nil {
		t.failed = err
	}
}

func (t *badgerTable) sleep() error {
	if t.db == nil {
		return nil
	}
	db := t.db
	t.db = nil
	if err := t.checked("close", guard(db.Close)); err != nil {
		return err
	}
	// It has the garbage of the value log, which is empty.
	if err := os.Remove(filepath.Join(t.path, "DISCARD")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *badgerTable) Rest() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sleep()
}

// loadBatch is the number of keys that Load passes on at a time.
const loadBatch = 4096

type batchOfKeys struct {
	bytes []byte
	ends  []int // of a key, of its value, and so on
}

// Load implements Table. Several iterators of BadgerDB run while f runs, each over a range of the
// keys.
func (t *badgerTable) Load(f func(key, value []byte) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return t.failed
	}
	if err := t.wake(0); err != nil {
		return err
	}
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
			readErrs[i] = guard(func() error { return t.read(from, to, full, empty, stop) })
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
	return t.checked("read", errors.Join(append(readErrs, err)...))
}

// bounds returns the first keys of up to n ranges with about equally many sorted tables; the first
// is nil.
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
		o.PrefetchValues = false // They are in the tables, with the keys.
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

func (t *badgerTable) Apply(ops []Op, entries int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return t.failed
	}
	if t.failed = t.wake(memTableFor(entries)); t.failed != nil {
		return t.failed
	}
	if t.failed = InstallMapFault(); t.failed != nil {
		return t.failed
	}
	defer func() { t.used = time.Now() }()
	if err := t.checked("use", nil); err != nil { // in the background, after the last call
		return err
	}
	t.failed = t.checked("write", guard(func() error { return t.apply(ops) }))
	return t.failed
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

func (t *badgerTable) Bytes() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes()
}

func (t *badgerTable) bytes() (n int64) {
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
func (t *badgerTable) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	if t.rest != nil {
		t.rest.Stop()
	}
	return t.sleep()
}
