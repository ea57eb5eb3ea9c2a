package index

import (
	"errors"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Probe reads what the superblock in some directories says about their store, without the table and
// without changing anything. It fails with ErrNone when there is none.
func Probe(fsys vfs.FS, dirs []string) (Meta, error) {
	l, _, err := openSuperblock(fsys, dirs, func(Meta) {}, func(mark) {})
	if err != nil {
		return Meta{}, err
	}
	return l.meta, errors.Join(l.close())
}
