package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
)

// checkBytes is the size of the data of a probe: enough for every multiprocessor, and less than a
// millisecond.
const checkBytes = 1 << 20

// checkSum is the checksum of the pattern.
const checkSum = 0x29ff4b426a73042c

// checkPatience bounds the time of a probe.
const checkPatience = 30 * time.Second

// pattern returns the data of a probe.
func pattern() []byte {
	words := make([]uint32, checkBytes/4)
	for i := range words {
		words[i] = uint32(i) * 2654435761 // 2^32 over the golden ratio: every bit of a word changes
	}
	return device.Bytes(words)
}

// check has a device store data, compute their checksum, and return them.
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
		return fmt.Errorf(
			"probe: %w: a known computation has the result %016x, not %016x, or its data came back changed",
			fault.ErrDevice, sum, uint64(checkSum),
		)
	}
	return nil
}
