package pager_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// BenchmarkDisk measures checkpoints and misses of the page manager beside raw loops on the same
// disk, which have one request of a page in flight; the manager has up to four. Use a multiple of
// 256 pages:
//
//	EXOSWARM_BENCH_DIR=/disk go test ./tiers/pager -run '^$' -bench Disk -benchtime 512x
func BenchmarkDisk(b *testing.B) {
	const page, frames, pages, group = 2 << 20, 256, 512, 64
	ctx := context.Background()
	dir, f := tierstest.Disk(b, "exoswarm-bench-pager", pages*page)
	s, err := pagestore.Open(pagestore.Options{
		PageSize: page, Tiers: []pagestore.Tier{{
			Dir: filepath.Join(dir, "tier"), Capacity: 4 << 30,
			SegmentBytes: 256 << 20,
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	p, err := pager.Open(pager.Options{
		Memory: []pager.Memory{{Frames: tierstest.NewHostFrames(frames, page)}}, Store: s, NoPrefetch: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	buf := vfs.Buffer(page)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < page; i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], rng.Uint64())
	}
	for id := range uint64(pages) {
		_, writeErr := f.WriteAt(buf, int64(id)*page)
		err = errors.Join(err, writeErr, p.Create(ctx, id, 0), p.Write(ctx, id, 0, buf))
		if id%(frames/2) == frames/2-1 {
			_, commitErr := p.Checkpoint(ctx, nil)
			err = errors.Join(err, commitErr)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, n int, all func(b *testing.B, from uint64) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(page)
			b.ReportAllocs()
			for at := 0; at < b.N; at += n {
				if err := all(b, uint64(at%pages)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	const half = frames / 2
	run("raw-write", half, func(_ *testing.B, from uint64) error {
		for id := range uint64(half) {
			if _, err := f.WriteAt(buf, int64(from+id)*page); err != nil {
				return err
			}
		}
		return f.Sync()
	})
	run("checkpoint", half, func(b *testing.B, from uint64) error {
		b.StopTimer()
		for id := range uint64(half) {
			if err := p.Write(ctx, from+id, 0, buf); err != nil {
				return err
			}
		}
		b.StartTimer()
		_, err := p.Checkpoint(ctx, nil)
		return err
	})
	run("raw-read", group, func(_ *testing.B, from uint64) error {
		for id := range uint64(group) {
			if _, err := f.ReadAt(buf, int64(from+id)*page); err != nil {
				return err
			}
		}
		return nil
	})
	run("pin-all", group, func(b *testing.B, from uint64) error {
		b.StopTimer()
		var ids [group]uint64
		for i := range ids {
			ids[i] = from + uint64(i)
		}
		if err := p.DoneWith(ctx, 0, ids[:]...); err != nil { // They are read again, and not found in their frames.
			return err
		}
		b.StartTimer()
		pins, err := p.PinAll(ctx, ids[:], 0, pager.ForReading, nil)
		pager.UnpinAll(pins)
		return err
	})
}
