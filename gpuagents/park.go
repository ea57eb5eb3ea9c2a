package gpuagents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// An agent keeps a number of shards open; of more, those that have had nothing to do for the longest are parked. A parked shard keeps its lease. It
// has no goroutine, consumer, pager or store and nothing on the device: its state is its last checkpoint or, without a data folder, a rest in
// memory. State is a function of the log, and a rest says up to which entry it has it, so nothing can be lost or come in another order: a shard
// that is opened again reads its log from there.

// rest is what a parked shard has left. It is an error because work ends with it.
type rest struct {
	entry  uint64 // the last entry of the log that was applied
	round  uint64 // the last round of votes up to entry
	stored bool   // the checkpoint has it, or the log has all that is needed
	pages  []restPage
}

// restPage is a page, with the parts of it that are not zeros: for each the number of its first block and of its blocks, both as varints, and their
// bytes.
type restPage struct {
	page uint64
	data []byte
}

// restBlock is the unit of what is kept of a page. A page of 2 MiB with the 8 kB of state of 1,000 agents is some 9 kB then.
const restBlock = 128

// parkMost is how many bytes the pages of a shard have at most that is parked. To bring more back takes longer than whoever asks should wait: 16 MiB
// are 20 ms of a disk.
const parkMost = 16 << 20

// errParked marks the end of work on a shard that was parked.
var errParked = errors.New("the shard is parked")

// Error implements error.
func (r *rest) Error() string { return errParked.Error() }

// Is implements errors.Is.
func (r *rest) Is(err error) bool { return err == errParked }

func (r *rest) bytes() (n int64) {
	for _, p := range r.pages {
		n += int64(len(p.data)) + 64
	}
	return n + 64
}

// packPage appends what is not zero of a page.
func packPage(to, page []byte) []byte {
	for at := 0; at < len(page); {
		end := min(at+restBlock, len(page))
		if zeros(page[at:end]) {
			at = end
			continue
		}
		first := at
		for at < len(page) && !zeros(page[at:min(at+restBlock, len(page))]) {
			at = min(at+restBlock, len(page))
		}
		to = binary.AppendUvarint(to, uint64(first))
		to = binary.AppendUvarint(to, uint64(at-first))
		to = append(to, page[first:at]...)
	}
	return to
}

// unpackPage makes a page of zeros the one that was packed.
func unpackPage(page, packed []byte) error {
	for len(packed) > 0 {
		first, n := binary.Uvarint(packed)
		if n <= 0 {
			return errors.New("a parked page is damaged")
		}
		packed = packed[n:]
		size, n := binary.Uvarint(packed)
		if n <= 0 || size > uint64(len(packed)-n) || first > uint64(len(page)) || size > uint64(len(page))-first {
			return errors.New("a parked page is damaged")
		}
		copy(page[first:], packed[n:n+int(size)])
		packed = packed[n+int(size):]
	}
	return nil
}

func zeros(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// pagePool has buffers of a page: parking and waking thousands of shards would fill the heap with them.
var pagePool sync.Pool

// takePage returns a buffer whose content is undefined. Give it back.
func takePage(size int) []byte {
	if buf, is := pagePool.Get().(*[]byte); is && cap(*buf) >= size {
		return (*buf)[:size]
	}
	return make([]byte, size)
}

func givePage(buf []byte) { pagePool.Put(&buf) }

// pack copies the pages of a shard into a rest. It returns false where they are too many.
func (m *memory) pack(ctx context.Context, entry uint64) (*rest, bool, error) {
	r := &rest{entry: entry}
	buf := takePage(m.pageBytes)
	defer givePage(buf)
	for page, made := range m.made {
		if !made {
			continue
		}
		if err := m.read(ctx, uint64(page), buf); err != nil {
			return nil, false, err
		}
		data := packPage(nil, buf)
		r.pages = append(r.pages, restPage{uint64(page), append(make([]byte, 0, len(data)), data...)})
	}
	return r, r.bytes() <= parkMost, nil
}

// unpark makes agents that have seen nothing those of a rest, and returns a reader of the entries behind it.
func (r *rest) unpark(ctx context.Context, st population, in jobs.Log) (jobs.Reader, error) {
	m := st.pages()
	if err := m.open(ctx, nil); err != nil {
		return nil, err
	}
	if err := st.reset(ctx); err != nil {
		return nil, err
	}
	buf := takePage(m.pageBytes)
	defer givePage(buf)
	for _, p := range r.pages {
		clear(buf)
		if err := unpackPage(buf, p.data); err != nil {
			return nil, fmt.Errorf("page %d: %w", p.page, err)
		}
		if err := m.write(ctx, p.page, buf); err != nil {
			return nil, err
		}
	}
	if err := st.restored(ctx); err != nil {
		return nil, err
	}
	return in.Read(ctx, r.entry+1)
}

// park parks the shard if nothing of it is under way; nil says that it goes on.
func (t *turn) park(ctx context.Context) (*rest, error) {
	m := t.state.pages()
	if m.claims != nil {
		return nil, nil
	}
	made := 0
	for _, is := range m.made {
		if is {
			made++
		}
	}
	if made*m.pageBytes > parkMost {
		t.seat.fixed.Store(true)
		return nil, nil
	}
	if t.room.taken() {
		return nil, nil
	}
	if err := t.answers.flush(ctx); err != nil {
		return nil, err
	}
	if t.keep != nil && t.keep.store != nil {
		if err := t.keep.save(ctx, t.state); err != nil {
			return nil, err
		}
		if t.keep.last.Seq != t.keep.stored {
			return nil, nil
		}
		return &rest{entry: t.at, stored: true}, nil
	}
	r, small, err := m.pack(ctx, t.at)
	if err != nil {
		return nil, err
	}
	r.round = t.rounds.last
	if !small || !t.a.rests(r) {
		t.seat.fixed.Store(!small)
		return nil, nil
	}
	return r, nil
}

// rests reports whether there is memory for what a shard leaves.
func (a *Agent) rests(r *rest) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resting+r.bytes() <= a.o.ParkedMemory
}

// openings are the shards that are open. Their number is bounded where some of them have nothing to do: those are parked for others, the one that
// has been idle for the longest first. Where all have something to do there are more.
type openings struct {
	most int

	mu   sync.Mutex
	all  map[*opened]struct{}
	left *bell // rung when one is left
}

// opened is a shard that is open. Its methods are called by the loop of the shard, park is closed by openings.
type opened struct {
	park chan struct{} // has a token when the shard is to be parked

	mu    sync.Mutex
	since time.Time   // when it had nothing to do any more; zero: it has
	asked time.Time   // when it was last asked to park
	fixed atomic.Bool // it is too large to be parked
	again bool        // it was open before

	replay atomic.Pointer[replay] // nil: it is not replayed
	follow *follow                // nil: the agent has the lease; of the loop
}

// leastIdle is how long a shard has had nothing to do before it is parked for another, and openPatience how long that one waits before it is
// opened beside the others.
const (
	leastIdle    = 100 * time.Millisecond
	openPatience = time.Second
)

func newOpenings(most int) *openings {
	return &openings{most: most, all: map[*opened]struct{}{}, left: newBell()}
}

// idle and busy say whether the shard has something to do.
func (s *opened) idle() { s.set(time.Now()) }
func (s *opened) busy() { s.set(time.Time{}) }

func (s *opened) set(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// full reports whether as many shards are open as are kept open.
func (o *openings) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= o.most
}

// take waits until a shard may be opened, or for openPatience.
func (o *openings) take(ctx context.Context) *opened {
	s := &opened{park: make(chan struct{}, 1), since: time.Now()}
	t := time.NewTimer(openPatience)
	defer t.Stop()
	look := time.NewTicker(leastIdle)
	defer look.Stop()
	for late := false; ; {
		o.mu.Lock()
		left := o.left.next()
		if len(o.all) < o.most || late || ctx.Err() != nil {
			o.all[s] = struct{}{}
			o.mu.Unlock()
			return s
		}
		o.ask()
		o.mu.Unlock()
		select {
		case <-left:
		case <-look.C:
		case <-t.C:
			late = true
		case <-ctx.Done():
		}
	}
}

// ask has the shard parked that has been idle for the longest. o.mu is held.
func (o *openings) ask() {
	var found *opened
	oldest, now := time.Now().Add(-leastIdle), time.Now()
	for s := range o.all {
		s.mu.Lock()
		if !s.since.IsZero() && s.since.Before(oldest) && now.Sub(s.asked) > openPatience && !s.fixed.Load() {
			found, oldest = s, s.since
		}
		s.mu.Unlock()
	}
	if found == nil {
		return
	}
	found.mu.Lock()
	found.asked = now
	found.mu.Unlock()
	select {
	case found.park <- struct{}{}:
	default:
	}
}

// trim has shards parked that are more than are kept open.
func (o *openings) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range len(o.all) - o.most {
		o.ask()
	}
}

// leave says that a shard is not open any more.
func (o *openings) leave(s *opened) {
	o.mu.Lock()
	delete(o.all, s)
	o.mu.Unlock()
	o.left.ring()
}
