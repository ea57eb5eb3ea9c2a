package index

// Op is one change of a table: a value for a key, or with a nil value the key's removal.
type Op struct{ Key, Value []byte }

// Table is an ordered store of small keys and values in its own directory or file, such as
// BadgerDB.
//
// Apply runs changes in one synced transaction, or in several, in order, when they are too many for
// one. Each is all or nothing: what Apply returned for survives a power loss, what was cut short
// may have happened up to any transaction, and after an error nothing more is applied. Changes that
// were never acknowledged may vanish. That is all that the index builds on: a table may also come
// back damaged or older, which the superblock shows. One goroutine uses a Table at a time.
type Table interface {
	// Load calls f for every key. The slices are good until f returns.
	Load(f func(key, value []byte) error) error
	// Apply runs changes. The table has about entries entries then, which size its memory.
	Apply(ops []Op, entries int64) error
	// Rest releases the resources of an open table, but for its files; the next call acquires them
	// again. Another goroutine may call it.
	Rest() error
	// Bytes is the length of its files.
	Bytes() int64
	Close() error
}

// Backend makes tables. Badger is the real one; package tabletest has a double whose files a test
// can crash.
type Backend interface {
	// Open opens a table of about entries entries, or makes it where there must be none.
	Open(path string, create bool, entries int64) (Table, error)
	// List returns the names of the tables in a directory.
	List(dir string) ([]string, error)
	// Remove deletes a table that is not open.
	Remove(path string) error
	// Reserve returns the most bytes that a table with a number of entries takes at any moment.
	Reserve(entries int64) int64
	// AtRest is the most bytes that such a table takes at rest.
	AtRest(entries int64) int64
	// Headroom returns the bytes that the medium must have free before Apply is tried.
	Headroom(entries int64) int64
}

// TableExt is the extension of a table's name.
const TableExt = ".table"
