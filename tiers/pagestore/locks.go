package pagestore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// locks holds the locks of a store's directories, and which of the directories cannot be used. It
// changes only while the store is opened or closed.
type locks struct {
	fs    vfs.FS
	tiers []Tier
	held  []io.Closer
	// unread are the directories that could not be opened, by tier, and why.
	unread map[int]error
}

// lock makes the directories and takes their locks. It fails if another process holds one, or if no
// directory can be used.
func (ds *locks) lock() error {
	for i, t := range ds.tiers {
		l, err := ds.lockDir(t.Dir)
		switch {
		case err == nil:
			ds.held = append(ds.held, l)
		case errors.Is(err, vfs.ErrLocked):
			return fmt.Errorf("tier %s: %w: %w", t.Name, tiers.ErrLocked, err)
		default:
			ds.unread[i] = fmt.Errorf("tier %s: %w", t.Name, err)
		}
	}
	if len(ds.unread) == len(ds.tiers) {
		return ds.unreadable()
	}
	return nil
}

// lockDir makes a directory, takes its lock, and checks that it can be read.
func (ds *locks) lockDir(dir string) (io.Closer, error) {
	if err := ds.fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	l, err := ds.fs.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return nil, err
	}
	if _, err := ds.fs.List(dir); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (ds *locks) unreadable() error {
	var errs []error
	for i := range ds.tiers {
		if err := ds.unread[i]; err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (ds *locks) paths() []string {
	var p []string
	for i, t := range ds.tiers {
		if ds.unread[i] == nil {
			p = append(p, t.Dir)
		}
	}
	return p
}

func (ds *locks) release() error {
	var errs []error
	for _, l := range ds.held {
		errs = append(errs, l.Close())
	}
	ds.held = nil
	return errors.Join(errs...)
}
