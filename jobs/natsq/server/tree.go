package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tree syncs the files that the server writes in addition to messages: the descriptions of streams
// and consumers, and their folders. The server syncs these files only when it syncs every message.
// Without them a power cut in the first half minute of a stream loses all of it.
type tree struct {
	dir  string
	seen map[string]time.Time // when what is on the disk was changed, by path
}

// treeEvery is how often the tree is looked through: 1,000 streams are 5,000 names.
const treeEvery = time.Second

// sync makes durable what has changed since the last call. What goes meanwhile needs no sync.
func (t *tree) sync() error {
	found := make(map[string]time.Time, len(t.seen))
	err := filepath.WalkDir(t.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir(), strings.HasPrefix(d.Name(), "meta."):
		default:
			return nil // messages, which the server syncs by itself
		}
		info, err := d.Info()
		if err == nil && !t.seen[path].Equal(info.ModTime()) {
			err = syncFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			found[path] = info.ModTime()
		}
		return err
	})
	if err == nil {
		t.seen = found
	}
	return err
}

// syncFile makes a file or the names in a folder durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
