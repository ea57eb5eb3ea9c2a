package graph

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// splitter copies to each device the links to its neurons. All links are on the first device. It
// splits consecutive rows at a time, through buffers of the first device.
type splitter struct {
	r                                *regions
	kernel                           device.Kernel
	places, columns, weights, delays device.Buffer
	// all are the delays of all links, if these were drawn before; else nil.
	all device.Buffer
}

// Rows and links that a splitter takes at a time.
const (
	splitRows  = 1 << 20
	splitLinks = 1 << 24
)

// atOnce returns how many rows and links a splitter takes at a time. A row is not cut.
func (s *spiking) atOnce() (rows, links int64) {
	l, n := s.o.Links, s.Len()
	longest := int64(l.Degree)
	for id := int64(0); l.Rows != nil && id < n; id++ {
		longest = max(longest, l.Before(id+1)-l.Before(id))
	}
	rows, links = splitRows, splitLinks
	if s.o.atOnce > 0 {
		rows, links = s.o.atOnce, s.o.atOnce
	}
	return min(rows, n), max(1, longest, min(links, l.Count(n)))
}

// sharedBytes returns what the first device has more if several make ticks. What a splitter has is
// free again after the opening.
func (s *spiking) sharedBytes() int64 {
	rows, links := s.atOnce()
	b := 4*s.Len() + 2*s.markBytes() + s.drawnBytes() + 4*rows + 4*links
	if s.o.Links.Weighted() {
		b += 4 * links
	}
	if s.delayed != nil {
		b += links
	}
	return b
}

// drawnBytes returns the bytes of delays that are drawn, which a device of several has in memory:
// the number of a link in its row, on which a draw depends, is lost when the row is split.
func (s *spiking) drawnBytes() int64 {
	if s.delayed == nil || s.o.Links.Rows != nil {
		return 0
	}
	return s.o.Links.Count(s.Len())
}

// measure returns the number of links to some neurons.
func (s *spiking) measure(own span) (links int64, err error) {
	if to := s.incoming(); to != nil {
		return int64(to[own.first+own.agents] - to[own.first]), nil
	}
	lengths, err := s.lengthsOf(own, s.active[0])
	for _, n := range lengths {
		links += int64(n)
	}
	return links, err
}

// lengthsOf returns how many links of each row go to some neurons, and leaves the numbers in a
// buffer.
func (s *spiking) lengthsOf(own span, to device.Buffer) ([]uint32, error) {
	count, err := s.Device().Kernel(graphset.Count)
	if err != nil {
		return nil, err
	}
	err = s.Stream.Launch(count, s.Columns.Shape(32*s.Len()), graphset.CountArgs{
		Columns: device.Ptr(s.columns), Offsets: device.Ptr(s.offsets), Degree: s.degree, Rows: uint32(s.Len()),
		Low: uint32(own.first), Size: uint32(own.agents), Lengths: device.Ptr(to),
	}.Args()...)
	if err := errors.Join(err, s.Stream.Sync(context.Background())); err != nil {
		return nil, gpubatch.Mark(err)
	}
	lengths := make([]uint32, s.Len())
	return lengths, gpubatch.Mark(to.Read(0, device.Bytes(lengths)))
}

// splitLinks copies the links to the neurons of each peer to it, and reorders the rows of the
// first device, so that those to its neurons stand first.
func (r *regions) splitLinks() (err error) {
	s := r.s
	p := &splitter{r: r}
	if p.kernel, err = s.Device().Kernel(graphset.Split); err != nil {
		return err
	}
	err = errors.Join(s.alloc(&s.lengths, 4*s.Len()), s.alloc(&s.marks[0], s.markBytes()),
		s.alloc(&s.marks[1], s.markBytes()), p.open())
	if err != nil {
		return err
	}
	for i := range r.All[1:] {
		if err := p.peer(i + 1); err != nil {
			return err
		}
	}
	if err := p.first(); err != nil {
		return err
	}
	if p.all != nil {
		s.delayed.delays = p.all
	}
	return p.close()
}

func (p *splitter) open() error {
	s := p.r.s
	rows, links := s.atOnce()
	errs := []error{s.alloc(&p.places, 4*rows), s.alloc(&p.columns, 4*links)}
	if s.o.Links.Weighted() {
		errs = append(errs, s.alloc(&p.weights, 4*links))
	}
	if s.delayed != nil {
		errs = append(errs, s.alloc(&p.delays, links))
	}
	if bytes := s.drawnBytes(); bytes > 0 {
		errs = append(errs, s.alloc(&p.all, bytes))
	}
	return errors.Join(errs...)
}

func (p *splitter) close() error {
	var errs []error
	for _, m := range []device.Buffer{p.places, p.columns, p.weights, p.delays} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// peer copies the links to the neurons of a further device.
func (p *splitter) peer(i int) error {
	r, s, t, on := p.r, p.r.s, p.r.all[i], p.r.All[i]
	lengths, err := s.lengthsOf(t.span, s.active[0])
	if err != nil {
		return err
	}
	offsets := make([]uint64, s.Len()+1)
	for id, n := range lengths {
		offsets[id+1] = offsets[id] + uint64(n)
	}
	if err := on.Memory.Write(t.at.offsets, device.Bytes(offsets)); err != nil {
		return on.Fail(err)
	}
	return r.chunks(func(from, end int64) error {
		places := make([]uint32, end-from)
		for k := range places {
			places[k] = uint32(offsets[from+int64(k)] - offsets[from])
		}
		if err := p.launch(t.span, false, from, places); err != nil {
			return err
		}
		at, links := int64(offsets[from]), int64(offsets[end]-offsets[from])
		return on.Fail(errors.Join(p.copy(links, func(size, which int64, of device.Buffer) error {
			place := []int64{t.at.columns, t.at.weights, t.at.delays}[which]
			return on.Stream.Copy(on.Memory, place+size*at, of, 0, size*links)
		}), on.Stream.Sync(context.Background())))
	})
}

// first reorders the rows of the first device.
func (p *splitter) first() error {
	r, s, l := p.r, p.r.s, p.r.s.o.Links
	if _, err := s.lengthsOf(r.all[0].span, s.lengths); err != nil {
		return err
	}
	return r.chunks(func(from, end int64) error {
		places := make([]uint32, end-from)
		for k := range places {
			places[k] = uint32(l.Before(from+int64(k)) - l.Before(from))
		}
		if err := p.launch(r.all[0].span, true, from, places); err != nil {
			return err
		}
		at, links := l.Before(from), l.Before(end)-l.Before(from)
		delays := p.all
		if s.delayed != nil && delays == nil {
			delays = s.delayed.delays
		}
		return gpubatch.Mark(errors.Join(p.copy(links, func(size, which int64, of device.Buffer) error {
			to := []device.Buffer{s.columns, s.weights, delays}[which]
			return s.Stream.Copy(to, size*at, of, 0, size*links)
		}), s.Stream.Sync(context.Background())))
	})
}

// chunks calls f for rows that a splitter takes at a time.
func (r *regions) chunks(f func(from, end int64) error) error {
	l, n := r.s.o.Links, r.n.Len()
	rows, links := r.s.atOnce()
	for from := int64(0); from < n; {
		end := from + 1
		for end < n && end-from < rows && l.Before(end+1)-l.Before(from) <= links {
			end++
		}
		if err := f(from, end); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// copy calls f with what the splitter has of links: the bytes of each, 0 for columns, 1 for weights
// and 2 for delays, and the memory.
func (p *splitter) copy(links int64, f func(size, which int64, of device.Buffer) error) error {
	if links == 0 {
		return nil
	}
	err := f(4, 0, p.columns)
	if p.weights != nil {
		err = errors.Join(err, f(4, 1, p.weights))
	}
	if p.delays != nil {
		err = errors.Join(err, f(1, 2, p.delays))
	}
	return err
}

// launch makes the links to the neurons of a span, of the rows from the row from on, and waits for
// them. If rest is set, the other links follow in each row.
func (p *splitter) launch(to span, rest bool, from int64, places []uint32) error {
	s := p.r.s
	if err := p.places.Write(0, device.Bytes(places)); err != nil {
		return gpubatch.Mark(err)
	}
	or := func(m, other device.Buffer) device.Arg {
		if m == nil {
			m = other // it is not used
		}
		return device.Ptr(m)
	}
	l, listed := s.o.Links, device.Buffer(nil)
	if s.delayed != nil {
		listed = s.delayed.delays
	}
	err := s.Stream.Launch(p.kernel, s.Columns.Shape(32*int64(len(places))), graphset.SplitArgs{
		Columns: device.Ptr(s.columns), Weights: device.Ptr(s.weights), Delays: or(listed, s.weights),
		Offsets: device.Ptr(s.offsets), Degree: s.degree, Weighted: device.Bit(l.Weighted()),
		Delayed: device.Bit(s.delayed != nil), Listed: device.Bit(listed != nil), DrawnArgs: drawn(l),
		FirstRow: uint32(from), Rows: uint32(len(places)), Low: uint32(to.first), Size: uint32(to.agents),
		Rest: device.Bit(rest), Places: device.Ptr(p.places), ToColumns: device.Ptr(p.columns),
		ToWeights: or(p.weights, p.columns), ToDelays: or(p.delays, p.columns),
	}.Args()...)
	return gpubatch.Mark(errors.Join(err, s.Stream.Sync(context.Background())))
}
