//go:build cuda

package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The reasons why Get has nothing.
var (
	errMissing = errors.New("no such entry")
	errDamaged = errors.New("entry is corrupt")
)

// entryMagic starts every entry; its number changes with the format, so that old entries are
// recompiled.
const entryMagic = "exocubin1\n"

// entryHeader is the entryMagic, the length as uint64 little-endian, and the SHA-256 of the
// content.
const entryHeader = len(entryMagic) + 8 + sha256.Size

// entryMax bounds what Get reads: far over any cubin, far under what a damaged length could ask
// for.
const entryMax = 64 << 20

// tempAge is how old a temporary file must be before it is taken for a killed writer's.
const tempAge = time.Hour

// cubinCache keeps compiled kernels in a directory that several processes may share. An entry is
// written to a temporary file and renamed into place, so a reader sees a whole entry or none. A
// writer that is killed leaves only the temporary file, which a later openCache removes. Each entry
// carries its length and digest. Get reports damage as errDamaged, and the next Put replaces the
// entry. Methods may be called concurrently. A nil cubinCache is always empty.
type cubinCache struct {
	dir string
}

// openCache makes the directory when it is missing and removes what killed writers left. Compiled
// kernels run with the rights of the process on the device, so the directory is made for its user
// only.
func openCache(dir string) (*cubinCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kernel cache: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("kernel cache: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), tempSuffix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tempAge {
			// Another process may have been faster; a file that stays costs a few kilobytes.
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return &cubinCache{dir: dir}, nil
}

// cubinKey names the entry of everything that decides what the compiler gives: source, options,
// chip and versions.
func cubinKey(parts ...string) string {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

const (
	entrySuffix = ".cubin"
	tempSuffix  = ".tmp"
)

func (c *cubinCache) path(key string) string { return filepath.Join(c.dir, key+entrySuffix) }

// Get returns the content of an entry, which the caller owns, or errMissing, errDamaged or the
// error of the file.
func (c *cubinCache) Get(key string) ([]byte, error) {
	if c == nil {
		return nil, errMissing
	}
	info, err := os.Stat(c.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("kernel cache: %w", err)
	}
	if info.Size() > entryMax {
		return nil, fmt.Errorf("kernel cache: %s has %d bytes: %w", c.path(key), info.Size(), errDamaged)
	}
	data, err := os.ReadFile(c.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("kernel cache: %w", err)
	}
	if len(data) < entryHeader || string(data[:len(entryMagic)]) != entryMagic {
		return nil, fmt.Errorf("kernel cache: %s has no header: %w", c.path(key), errDamaged)
	}
	length := binary.LittleEndian.Uint64(data[len(entryMagic):])
	content := data[entryHeader:]
	sum := sha256.Sum256(content)
	if length != uint64(len(content)) || !bytes.Equal(sum[:], data[len(entryMagic)+8:entryHeader]) {
		return nil, fmt.Errorf("kernel cache: %s: %d bytes do not match their digest: %w", c.path(key), len(content),
			errDamaged)
	}
	return content, nil
}

// Put stores an entry. It is not synced to the disk: what a power loss tears, Get finds out.
func (c *cubinCache) Put(key string, content []byte) (err error) {
	if c == nil {
		return nil
	}
	f, err := os.CreateTemp(c.dir, key+".*"+tempSuffix)
	if err != nil {
		return fmt.Errorf("kernel cache: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("kernel cache: %w", err), os.Remove(f.Name()))
		}
	}()
	sum := sha256.Sum256(content)
	head := binary.LittleEndian.AppendUint64([]byte(entryMagic), uint64(len(content)))
	_, err = f.Write(append(append(head, sum[:]...), content...))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), c.path(key))
}
