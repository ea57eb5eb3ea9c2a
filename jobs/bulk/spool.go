package bulk

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Spool is a folder of payloads. Any number of processes put payloads into it, and one serves it.
// The methods may be called from several goroutines.
type Spool struct {
	fs   vfs.FS
	dir  string
	free int64
	wait time.Duration
}

// SpoolOptions configure OpenSpool.
type SpoolOptions struct {
	// Dir is the folder, which is made if it is missing. Required.
	Dir string
	// FS is the file system; nil: that of the operating system.
	FS vfs.FS
	// LeastFree is how many bytes of the disk a payload must leave free; 0: 1 GiB.
	LeastFree int64
	// Wait is how long Put waits for room on the disk; 0: 10 s.
	Wait time.Duration
}

// Names in the folder of a spool.
const (
	payloadEnd = ".bulk"
	placeName  = "place"
	lockName   = "server.lock"
	putEvery   = 100 * time.Millisecond
)

// OpenSpool opens a folder. The caller owns nothing that must be closed.
func OpenSpool(o SpoolOptions) (*Spool, error) {
	s := &Spool{fs: o.FS, dir: o.Dir, free: o.LeastFree, wait: o.Wait}
	if s.fs == nil {
		s.fs = vfs.OS{}
	}
	if s.free == 0 {
		s.free = 1 << 30
	}
	if s.wait == 0 {
		s.wait = 10 * time.Second
	}
	if s.dir == "" {
		return nil, errors.New("open a spool: name its folder")
	}
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return nil, fmt.Errorf("open spool %s: %w", s.dir, err)
	}
	return s, nil
}

// Dir returns the folder.
func (s *Spool) Dir() string { return s.dir }

// file returns the name of the file of a payload.
func (s *Spool) file(id string) string { return filepath.Join(s.dir, id+payloadEnd) }

// Put stores data on the disk and returns its description, with Memory for the caller to raise. It
// waits a while for room on the disk, and fails with ErrFull. It does not keep data.
func (s *Spool) Put(ctx context.Context, swarm string, shard int, data []byte) (b swarms.Bulk, err error) {
	if len(data) < 1 || len(data) > swarms.MaxBulk {
		return b, fmt.Errorf("put a payload of %d bytes: use 1 to %d", len(data), swarms.MaxBulk)
	}
	at, err := s.Place()
	if err != nil {
		return b, err
	}
	if err := s.room(ctx, int64(headSize+len(data))); err != nil {
		return b, err
	}
	random := make([]byte, swarms.BulkID/2+swarms.BulkToken)
	_, _ = rand.Read(random) // which never fails
	h := head{
		id: hex.EncodeToString(random[:swarms.BulkID/2]), token: random[swarms.BulkID/2:], bytes: len(data),
		created: time.Now(), swarm: swarm, shard: shard,
	}
	first, err := h.encode()
	if err != nil {
		return b, err
	}
	if err := s.write(s.file(h.id), first, data); err != nil {
		return b, fmt.Errorf("put a payload into %s: %w", s.dir, err)
	}
	return swarms.Bulk{
		Version: jobs.Version, Place: at.Address, TLS: at.TLS, ID: h.id, Token: h.token, Bytes: len(data),
		Memory: len(data), Sums: swarms.BulkSums(data),
	}, nil
}

// write makes a file of parts that is on the disk when it returns. After an error there is no file,
// unless the disk fails again.
func (s *Spool) write(name string, parts ...[]byte) error {
	f, err := s.fs.Open(name, vfs.Create)
	if err != nil {
		return err
	}
	if _, err = f.WritePartsAt(parts, 0); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		_ = s.fs.Remove(name)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// room waits until the disk has room for n bytes.
func (s *Spool) room(ctx context.Context, n int64) error {
	for began := time.Now(); ; {
		free, err := s.fs.Free(s.dir)
		if err != nil {
			return fmt.Errorf("free bytes of %s: %w", s.dir, err)
		}
		if free-n >= s.free {
			return nil
		}
		if time.Since(began) >= s.wait {
			return fmt.Errorf("%s has %d bytes free, and %d stay free: take a snapshot of the swarms and trim their "+
				"logs (exoswarm swarm trim): %w", s.dir, free, s.free, ErrFull)
		}
		select {
		case <-time.After(putEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Appended notes the number of the entry that has the description. Without it the payload is kept
// longer.
func (s *Spool) Appended(b swarms.Bulk, entry uint64) error { return s.note(b.ID, entry) }

func (s *Spool) note(id string, entry uint64) error {
	f, err := s.fs.Open(s.file(id), 0)
	if err == nil {
		_, err = f.WriteAt(encodeEntry(entry), entryAt)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("note entry %d of payload %s: %w", entry, id, err)
	}
	return nil
}

// Remove removes a payload whose description is in no log.
func (s *Spool) Remove(b swarms.Bulk) error { return s.remove(b.ID) }

func (s *Spool) remove(id string) error {
	if err := s.fs.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove payload %s: %w", id, err)
	}
	return nil
}

// open opens the file of a payload. The caller closes it. Without such a payload the error is
// ErrUnknown.
func (s *Spool) open(id string) (vfs.File, head, error) {
	f, err := s.fs.Open(s.file(id), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, head{}, fmt.Errorf("payload %s: %w", id, ErrUnknown)
	}
	if err != nil {
		return nil, head{}, fmt.Errorf("payload %s: %w: %w", id, ErrDisk, err)
	}
	first := make([]byte, headSize)
	size, err := f.Size()
	if err == nil && size < headSize {
		return nil, head{}, errors.Join(fmt.Errorf("payload %s of %d bytes: %w", id, size, ErrDamaged), f.Close())
	}
	if err == nil {
		_, err = f.ReadAt(first, 0)
	}
	if err != nil {
		return nil, head{}, errors.Join(fmt.Errorf("payload %s: %w: %w", id, ErrDisk, err), f.Close())
	}
	h, err := decodeHead(first)
	if err == nil && (h.id != id || size != int64(headSize+h.bytes)) {
		err = fmt.Errorf("payload %s of %d bytes: %w", id, size, ErrDamaged)
	}
	if err != nil {
		return nil, head{}, errors.Join(err, f.Close())
	}
	return f, h, nil
}

// ids returns the ids of all payloads.
func (s *Spool) ids() (all []string, err error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list spool %s: %w", s.dir, err)
	}
	for _, n := range names {
		id, is := strings.CutSuffix(n, payloadEnd)
		if raw, err := hex.DecodeString(id); is && err == nil && len(raw) == swarms.BulkID/2 {
			all = append(all, id)
		}
	}
	return all, nil
}

// Place is where the payloads of a spool are served.
type Place struct {
	Address string `json:"address"` // HOST:PORT
	TLS     bool   `json:"tls,omitempty"`
}

// Place returns where the process that serves the spool has said that it does so last. Without one
// it fails with ErrNoServer.
func (s *Spool) Place() (p Place, err error) {
	f, err := s.fs.Open(filepath.Join(s.dir, placeName), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("%s: %w: start one with --bulk %s", s.dir, ErrNoServer, s.dir)
	}
	if err != nil {
		return p, fmt.Errorf("read the place of %s: %w", s.dir, err)
	}
	b := make([]byte, placeSize)
	_, err = f.ReadAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return p, fmt.Errorf("read the place of %s: %w", s.dir, err)
	}
	if err := json.Unmarshal(bytes.TrimRight(b, " \x00"), &p); err != nil || p.Address == "" {
		return p, fmt.Errorf("the place of %s is damaged: start the CPU agent that serves it again: %w", s.dir,
			errors.Join(ErrDamaged, err))
	}
	return p, nil
}

// placeSize is the size of the file of a place: a write of less than a sector is whole or not at
// all.
const placeSize = 512

// setPlace stores where the spool is served.
func (s *Spool) setPlace(p Place) (err error) {
	b, err := json.Marshal(p)
	if err == nil && len(b) > placeSize {
		err = fmt.Errorf("place %.100s is too long", p.Address)
	}
	if err != nil {
		return err
	}
	b = append(b, bytes.Repeat([]byte(" "), placeSize-len(b))...)
	name := filepath.Join(s.dir, placeName)
	f, err := s.fs.Open(name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.fs.Open(name, vfs.Create)
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("store the place of %s: %w", s.dir, err)
	}
	return nil
}
