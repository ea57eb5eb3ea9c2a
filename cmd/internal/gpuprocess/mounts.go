package gpuprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// mountsFile is the file of the data folder that tells which tiers were on disks of their own.
const mountsFile = "tiers.json"

type mounts struct {
	Version int `json:"v"`
	// Mounted are the folders of tiers that were on another file system than the root folder.
	Mounted []string `json:"mounted"`
}

// checkMounts returns an error of usage for a tier whose folder was on a separate disk at an
// earlier start and is on the root disk now: the disk is not mounted, and its pages would fill the
// root disk. It notes the disks of this start. Without a data folder there is nothing to compare
// with. device returns the file system of a folder; a folder that cannot be read is left as it was.
func checkMounts(dataDir string, all []*storeTier, device func(path string) (uint64, error)) error {
	if dataDir == "" || len(all) == 0 {
		return nil
	}
	file := filepath.Join(dataDir, mountsFile)
	was, err := readMounts(file)
	if err != nil {
		return err
	}
	root, err := device("/")
	if err != nil {
		return fmt.Errorf("file system of /: %w", err)
	}
	now := mounts{Version: 1, Mounted: slices.Clone(was.Mounted)}
	for _, t := range all {
		on, err := device(t.dir)
		known := slices.Contains(was.Mounted, t.dir)
		switch {
		case err != nil: // openTiers says so
		case on == root && known:
			return command.Usage("--tier %s=%s: its disk is not mounted: the folder was on a disk of its own, and is "+
				"on the root disk now: mount the disk, or remove the folder from %s if it is to be there", t.name,
				t.dir, file)
		case on != root && !known:
			now.Mounted = append(now.Mounted, t.dir)
		}
	}
	if slices.Equal(now.Mounted, was.Mounted) {
		return nil
	}
	return writeMounts(file, now)
}

// readMounts reads the file; without one no tier is known. A file that is damaged is an error of
// usage: to ignore it would hide a disk that is missing.
func readMounts(file string) (m mounts, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return m, command.Usage("--data-dir: read which tiers are mounted: %s: %v: remove the file if all disks are",
			file, err)
	}
	return m, nil
}

// writeMounts replaces the file as a whole.
func writeMounts(file string, m mounts) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(file+".new", append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("note which tiers are mounted: %w", err)
	}
	return nil
}

func deviceOf(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return uint64(info.Sys().(*syscall.Stat_t).Dev), nil //nolint:unconvert // 32 bits elsewhere
}
