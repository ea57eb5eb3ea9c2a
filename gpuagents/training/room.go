package training

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// part is what is on the device at a time: sequences of a batch from first on, and their moments
// from start on.
type part struct{ first, sequences, start, moments int }

func (p part) elements() int64 { return int64(p.sequences) * int64(p.moments) }

// section is memory of a part on the device, and of some sections the same on the host.
type section struct {
	device.Buffer
	host []byte
	at   int64 // in the host memory
}

// room has the memory of a part. By moment and sequence: the numbers of inputs or of rows of the
// embedding, items, targets, units, gradients and masks of the readout, gradients of gates, and
// predictions. By sequence: lengths, and units at the beginning.
type room struct {
	moments, sequences int64 // that there is room for
	host               device.HostBuffer

	rows, numbers, items, targets, predictions, lengths, carry section
	states, gradients, masks, gates                            section
}

// roomBytes is the device memory of a moment and of a sequence.
func (s Shape) roomBytes() (moment, sequence int64) {
	var r room
	for _, p := range r.sections(s) {
		if p.bySequence {
			sequence += p.bytes
		} else {
			moment += p.bytes
		}
	}
	return moment, sequence
}

// sized is a section and its bytes for each moment or sequence.
type sized struct {
	of                 *section
	bytes              int64
	bySequence, staged bool
}

func (r *room) sections(s Shape) []sized {
	P, E := int64(s.class()), int64(s.elements())
	rows, numbers := 2*P, int64(0)
	if s.Rows > 0 {
		rows, numbers = 0, 4
	}
	items := int64(0)
	if s.Items > 0 {
		items = 4
	}
	return []sized{
		{&r.rows, rows, false, true},
		{&r.numbers, numbers, false, true},
		{&r.items, items, false, true},
		{&r.targets, 4, false, true},
		{&r.predictions, 4 * E, false, true},
		{&r.lengths, 4, true, true},
		{&r.carry, 4 * P, true, true},
		{&r.states, 2 * P, false, false},
		{&r.gradients, 2 * E, false, false},
		{&r.masks, 4, false, false},
		{&r.gates, 8 * P, false, false},
	}
}

// reserve makes room for a part.
func (m *memory) reserve(p part) error {
	r := &m.room
	if p.elements() <= r.moments && int64(p.sequences) <= r.sequences {
		return nil
	}
	if err := r.close(m.Shape); err != nil {
		return err
	}
	r.moments, r.sequences = max(r.moments, p.elements()), max(r.sequences, int64(p.sequences))
	all, host := r.sections(m.Shape), int64(0)
	for _, of := range all {
		n := r.moments
		if of.bySequence {
			n = r.sequences
		}
		var err error
		if of.of.Buffer, err = m.alloc(max(16, n*of.bytes)); err != nil {
			r.moments = 0 // the next part asks again
			return errors.Join(err, r.close(m.Shape))
		}
		if of.staged {
			of.of.at = host
			host += (n*of.bytes + 63) &^ 63
		}
	}
	var err error
	if r.host, err = m.dev.AllocHost(max(64, host), purpose); err != nil {
		r.moments = 0
		return errors.Join(fmt.Errorf("%d bytes of host memory of a training: %w", host, err), r.close(m.Shape))
	}
	for i, of := range all {
		end := host
		if i+1 < len(all) && all[i+1].staged {
			end = all[i+1].of.at
		}
		if of.staged {
			of.of.host = r.host.Bytes()[of.of.at:end]
		}
	}
	return nil
}

// close releases the memory, which no work may use.
func (r *room) close(s Shape) error {
	var wrong []error
	for _, of := range r.sections(s) {
		if of.of.Buffer != nil {
			wrong = append(wrong, of.of.Close())
		}
		*of.of = section{}
	}
	if r.host != nil {
		wrong = append(wrong, r.host.Close())
		r.host = nil
	}
	return errors.Join(wrong...)
}

// piece is a copy of the first n bytes of a section.
func (s *section) piece(host device.HostBuffer, n int64) device.Piece {
	return device.Piece{Buffer: s.Buffer, Host: host, HostOff: s.at, Bytes: n}
}
