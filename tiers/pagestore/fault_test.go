package pagestore_test

import (
	"path/filepath"
	"syscall"

	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

type fault struct {
	name    string
	kinds   []tierstest.OpKind
	err     error
	forever bool // the tier of the failing call stays broken
}

var faults = []fault{
	{"EIO once", []tierstest.OpKind{
		tierstest.OpRead, tierstest.OpWrite, tierstest.OpSync, tierstest.OpCreate, tierstest.OpOpen,
		tierstest.OpSyncDir, tierstest.OpRemove,
		tierstest.OpAllocate,
	}, syscall.EIO, false},
	{"EIO for good", []tierstest.OpKind{
		tierstest.OpRead, tierstest.OpWrite, tierstest.OpSync, tierstest.OpCreate, tierstest.OpOpen,
		tierstest.OpSyncDir,
		tierstest.OpRemove, tierstest.OpAllocate,
	}, syscall.EIO, true},
	{"failed sync for good", []tierstest.OpKind{tierstest.OpSync}, syscall.EIO, true},
	{
		"ENOSPC once",
		[]tierstest.OpKind{tierstest.OpWrite, tierstest.OpCreate, tierstest.OpAllocate},
		syscall.ENOSPC,
		false,
	},
	{
		"ENOSPC for good",
		[]tierstest.OpKind{tierstest.OpWrite, tierstest.OpCreate, tierstest.OpAllocate},
		syscall.ENOSPC,
		true,
	},
}

func (f fault) applies(op tierstest.Op) bool {
	for _, k := range f.kinds {
		if k == op.Kind {
			return true
		}
	}
	return false
}

func tierOf(name string) string {
	if filepath.Ext(name) == "" {
		return name
	}
	return filepath.Dir(name)
}
