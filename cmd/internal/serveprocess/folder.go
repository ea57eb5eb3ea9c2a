package serveprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// folderFormat is the version of the layout of a data folder: a file exoswarm.json, a file lock,
// and the folders nats, gpu, cpu and demo. Each folder belongs to one part of the process. A change
// of the layout that an older program cannot read needs the next number.
const folderFormat = 1

// marker describes a data folder, in its file exoswarm.json.
type marker struct {
	Format  int    `json:"format"`
	Version string `json:"version"` // of the program that made it
}

// openFolder makes or opens a data folder and locks it. One process at a time holds the lock, until
// it closes the file or ends in any way; the kernel then releases it. A folder of a later layout is
// refused before anything is written. After an error the folder is not locked, but may exist.
func openFolder(dir string) (lock io.Closer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, command.Usage("--data-dir: %v", err)
	}
	lock, err = vfs.Own(dir)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, command.Usage("--data-dir %v: end that one, or name another folder", err)
	case err != nil:
		return nil, command.Usage("--data-dir %v", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	name := filepath.Join(dir, command.DataMarker)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		// The marker is written under the lock, so two first starts do not both write it.
		version, _ := command.Version()
		if data, err = json.Marshal(marker{folderFormat, version}); err != nil {
			return nil, fmt.Errorf("describe the data folder: %w", err)
		}
		if err := renameio.WriteFile(name, append(data, '\n'), 0o600); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
		return lock, makeParts(dir)
	}
	if err != nil {
		return nil, command.Usage("--data-dir: %v", err)
	}
	var m marker
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, command.Usage("--data-dir %s: exoswarm.json is damaged: %v: restore it, or name another folder",
			dir, err)
	}
	// An older layout would be converted here; there is none yet.
	if m.Format > folderFormat {
		return nil, command.Usage("--data-dir %s was made by version %s, which is newer: update this program", dir,
			m.Version)
	}
	return lock, makeParts(dir)
}

// makeParts makes the folders of the parts. It is called at every start: a folder that was removed
// is made again.
func makeParts(dir string) error {
	for _, part := range []string{"nats", "gpu", "cpu"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o700); err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
	}
	return nil
}
