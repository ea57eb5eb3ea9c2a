package pagestore_test

import (
	"path/filepath"
	"syscall"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// fault is a way for a medium to fail.
type fault struct {
	name    string
	kinds   []vfs.Kind
	err     error
	forever bool // the tier of the failing call stays broken
}

var faults = []fault{
	{"EIO once", []vfs.Kind{
		vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpCreate, vfs.OpOpen, vfs.OpSyncDir, vfs.OpRemove,
		vfs.OpAllocate,
	}, syscall.EIO, false},
	{"EIO for good", []vfs.Kind{
		vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpCreate, vfs.OpOpen, vfs.OpSyncDir,
		vfs.OpRemove, vfs.OpAllocate,
	}, syscall.EIO, true},
	{"failed sync for good", []vfs.Kind{vfs.OpSync}, syscall.EIO, true},
	{"ENOSPC once", []vfs.Kind{vfs.OpWrite, vfs.OpCreate, vfs.OpAllocate}, syscall.ENOSPC, false},
	{"ENOSPC for good", []vfs.Kind{vfs.OpWrite, vfs.OpCreate, vfs.OpAllocate}, syscall.ENOSPC, true},
}

// applies says whether a call can fail this way.
func (f fault) applies(op vfs.Op) bool {
	for _, k := range f.kinds {
		if k == op.Kind {
			return true
		}
	}
	return false
}

// tierOf is the directory of a call.
func tierOf(name string) string {
	if filepath.Ext(name) == "" {
		return name
	}
	return filepath.Dir(name)
}
