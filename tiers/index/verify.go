package index

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// verify reads both copies whole: every batch must be intact, and nothing may follow the last
// commit. It returns an error for each copy that is damaged. The store goes on with the other one;
// renew makes both anew.
func (x *superblock) verify() error {
	if x.broken {
		return nil // There is nothing to check until it is renewed.
	}
	var errs []error
	for i, c := range x.copies {
		if err := x.verifyCopy(c, i); err != nil {
			errs = append(errs, fmt.Errorf("superblock %s: %w", c.path, err))
		}
	}
	return errors.Join(errs...)
}

// verifyCopy checks one copy. The error is tiers.ErrCorrupt for damage, or the error of the medium
// for a failed read.
func (x *superblock) verifyCopy(c *file, which int) error {
	size, err := c.Size()
	if err != nil {
		return err
	}
	if size < x.end {
		return fmt.Errorf("%d bytes of %d: %w", size, x.end, tiers.ErrCorrupt)
	}
	block := make([]byte, vfs.BlockSize)
	if _, err := c.ReadAt(block, 0); err != nil {
		return err
	}
	if _, gen, err := decodeFileHeader(block); err != nil || gen != x.gen {
		return fmt.Errorf("header of generation %d, want %d: %w", gen, x.gen, tiers.ErrCorrupt)
	}
	r := reader{x: x}
	r.sizes[which] = size
	seq := uint64(0)
	for off := int64(vfs.BlockSize); off < x.end; seq++ {
		b, err := r.readBatch(c, size, off)
		if err != nil {
			return err
		}
		if b == nil || b.gen != x.gen || b.seq != seq {
			return fmt.Errorf("batch %d at %d: %w", seq, off, tiers.ErrCorrupt)
		}
		off += b.length
	}
	for off := x.end; off+vfs.BlockSize <= size; off += vfs.BlockSize {
		if _, err := c.ReadAt(block, off); err != nil {
			return err
		}
		if !bytes.Equal(block, zeros[:]) {
			return fmt.Errorf("bytes after the end at %d: %w", off, tiers.ErrCorrupt)
		}
	}
	return nil
}
