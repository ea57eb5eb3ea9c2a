package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// checkBytes is the size of the data of a probe: enough for every multiprocessor, and less than a
// millisecond.
const checkBytes = 1 << 20

const checkSum = 0x29ff4b426a73042c

const checkPatience = 30 * time.Second

func pattern() []byte {
	words := make([]uint32, checkBytes/4)
	for i := range words {
		words[i] = uint32(i) * 2654435761 // 2^32 over the golden ratio: every bit of a word changes
	}
	return device.Bytes(words)
}

func check(ctx context.Context, d device.Device) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	b, err := d.Alloc(checkBytes, "probe")
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	want, got := pattern(), make([]byte, checkBytes)
	if err := b.Write(0, want); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	sum, err := device.Checksum(ctx, d, b, 0, checkBytes)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if err := b.Read(0, got); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if sum != checkSum || !bytes.Equal(got, want) {
		return fmt.Errorf("probe: %w: a known computation has the result %016x, not %016x, or its data came back "+
			"changed", gpubatch.ErrDevice, sum, uint64(checkSum))
	}
	return nil
}
