package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// relayBytes is the pinned memory of a rank: large enough to hide the start of a copy (about 10
// us), and small compared with pages.
const relayBytes = 4 << 20

// Relay is a device.Collective of any devices: their bytes meet in host memory. It is the plain
// twin of faster collectives, and the fallback where there is none. NewRelay makes it.
type Relay struct {
	devices []device.Device
	reason  string
	staging []device.HostBuffer // by rank, of relayBytes
	closed  bool
}

var _ device.Collective = (*Relay)(nil)

// NewRelay makes a collective of these devices, with 4 MiB of pinned host memory a device. reason
// is what its Route says.
func NewRelay(devices []device.Device, reason string) (*Relay, error) {
	if err := device.CheckRanks(devices); err != nil {
		return nil, err
	}
	r := &Relay{devices: append([]device.Device{}, devices...), reason: reason}
	for _, d := range devices {
		b, err := d.AllocHost(relayBytes, "collective")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("collective of %d devices: %w", len(devices), err), r.Close())
		}
		r.staging = append(r.staging, b)
	}
	return r, nil
}

// Devices are the ranks.
func (r *Relay) Devices() []device.Device { return r.devices }

// Route is "host".
func (r *Relay) Route() device.Route { return device.Route{Name: "host", Reason: r.reason} }

// Sum adds up on the host, a piece of relayBytes at a time.
func (r *Relay) Sum(ctx context.Context, element device.Kind, n int64, places []device.Place) error {
	bytes, err := device.CheckSum(len(r.devices), element, n, places)
	if err != nil {
		return err
	}
	add := add[uint32]
	if element == device.KindUint64 {
		add = addWide
	}
	err = r.each(ctx, bytes, relayBytes, func(off, size int64) error {
		for rank, p := range places {
			if err := p.Stream.Download(r.staging[rank], 0, p.Buffer, p.Off+off, size); err != nil {
				return err
			}
		}
		if err := syncStreams(ctx, places); err != nil {
			return err
		}
		total := r.staging[0].Bytes()[:size]
		for _, b := range r.staging[1:] {
			add(total, b.Bytes())
		}
		for rank, p := range places {
			copy(r.staging[rank].Bytes(), total) // of rank 0 onto itself
			if err := p.Stream.Upload(p.Buffer, p.Off+off, r.staging[rank], 0, size); err != nil {
				return err
			}
		}
		return syncStreams(ctx, places)
	})
	if err != nil {
		return fmt.Errorf("sum of %d elements of %v over %d devices: %w", n, element, len(r.devices), err)
	}
	return nil
}

func add[T uint32 | uint64](to, from []byte) {
	sums, values := device.Of[T](to), device.Of[T](from)
	values = values[:len(sums)]
	for i, v := range values {
		sums[i] += v
	}
}

func addWide(to, from []byte) { add[uint64](to, from) }

// Gather has every rank's piece pass through the staging of all.
func (r *Relay) Gather(ctx context.Context, n int64, places []device.Place) error {
	if err := device.CheckCollective("gather", len(r.devices), n, int64(len(r.devices)), places); err != nil {
		return err
	}
	ranks := int64(len(places))
	share := relayBytes / ranks / device.RangeAlign * device.RangeAlign
	err := r.each(ctx, n, share, func(off, size int64) error {
		for rank, p := range places {
			if err := p.Stream.Download(r.staging[rank], int64(rank)*share, p.Buffer, p.Off+int64(rank)*n+off,
				size); err != nil {
				return err
			}
		}
		if err := syncStreams(ctx, places); err != nil {
			return err
		}
		for rank, p := range places {
			pieces := make([]device.Piece, 0, len(places))
			for from := range ranks {
				if from == int64(rank) {
					continue
				}
				copy(r.staging[rank].Bytes()[from*share:][:size], r.staging[from].Bytes()[from*share:][:size])
				pieces = append(pieces, device.Piece{
					Buffer: p.Buffer, Off: p.Off + from*n + off, Host: r.staging[rank],
					HostOff: from * share, Bytes: size,
				})
			}
			if err := p.Stream.UploadAll(pieces); err != nil {
				return err
			}
		}
		return syncStreams(ctx, places)
	})
	if err != nil {
		return fmt.Errorf("gather %d bytes from each of %d devices: %w", n, len(r.devices), err)
	}
	return nil
}

// each cuts n bytes into pieces of at most a size.
func (r *Relay) each(ctx context.Context, n, most int64, fn func(off, size int64) error) error {
	if r.closed {
		return fmt.Errorf("collective: %w", device.ErrClosed)
	}
	for off := int64(0); off < n; off += most {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(off, min(most, n-off)); err != nil {
			return err
		}
	}
	return nil
}

// syncStreams waits for all streams, also where one fails.
func syncStreams(ctx context.Context, places []device.Place) error {
	var errs []error
	for _, p := range places {
		errs = append(errs, p.Stream.Sync(ctx))
	}
	return errors.Join(errs...)
}

// Close gives the pinned memory back. A second call does nothing.
func (r *Relay) Close() error {
	r.closed = true
	var errs []error
	for _, b := range r.staging {
		errs = append(errs, b.Close())
	}
	r.staging = nil
	return errors.Join(errs...)
}
