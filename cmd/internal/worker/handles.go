package worker

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// A handle is a number from firstSlot<<slotBits to 1<<63. Programs see it as a pointer. No memory
// of a process is there: such addresses are not canonical on amd64. So a program that reads or
// writes through a handle ends with a fault, and changes nothing.
//
// An object of n bytes has whole slots, with more than n bytes together. A handle plus k, for k of
// 0 to n, names byte k of the object, and no other object has that number.
const (
	slotBits  = 32
	firstSlot = 1 << (57 - slotBits)
	slotLimit = 1 << (63 - slotBits)
)

// object is what a handle names: memory, a context, a model or an inference.
type object interface {
	// kind is the word for the object in errors.
	kind() string
	// parent returns the object that this one is a part of; nil: none.
	parent() object
	// close frees what the object holds, when the calls that use it have ended. It is called once.
	close(l *Library) error
}

// life keeps an object open while calls use it.
type life struct {
	calls sync.RWMutex // held for reading by calls
	freed bool
	parts sync.WaitGroup // objects with this parent; a call adds them
}

// begin lets a call use the object of a handle until it calls done.
func (l *life) begin(handle uint64) error {
	l.calls.RLock()
	if l.freed {
		l.calls.RUnlock()
		return freed(handle)
	}
	return nil
}

func (l *life) done() { l.calls.RUnlock() }

// end waits for the calls in progress. Later ones fail.
func (l *life) end() {
	l.calls.Lock()
	defer l.calls.Unlock()
	l.freed = true
}

func freed(handle uint64) error {
	return fmt.Errorf("%#x was freed before: %w", handle, device.ErrInvalidArgument)
}

// entry is an object with its first slot.
type entry struct {
	first, slots uint64
	object       object
}

// handles gives numbers to objects. A number is never given twice, so a handle of a freed object
// stays invalid. All methods may be called from several goroutines at once.
type handles struct {
	mu   sync.Mutex
	next uint64           // slot after those given
	open map[uint64]entry // by each slot
}

// put gives a handle to an object of n bytes.
func (h *handles) put(o object, n uint64) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slots := n>>slotBits + 1
	if h.open == nil {
		h.open, h.next = map[uint64]entry{}, firstSlot
	}
	if slots > slotLimit-h.next {
		return 0, fmt.Errorf("%s of %d bytes: this process has used all handles: %w", o.kind(), n,
			device.ErrOutOfMemory)
	}
	e := entry{h.next, slots, o}
	for i := range slots {
		h.open[e.first+i] = e
	}
	h.next += slots
	return e.first << slotBits, nil
}

// at returns the object that a handle lies in, and the distance from its first byte. mu is held.
func (h *handles) at(handle uint64) (e entry, off uint64, err error) {
	slot := handle >> slotBits
	e, is := h.open[slot]
	switch {
	case is:
		return e, handle - e.first<<slotBits, nil
	case handle == 0:
		err = fmt.Errorf("the handle is null: %w", device.ErrInvalidArgument)
	case slot >= firstSlot && slot < h.next:
		err = freed(handle)
	default:
		err = fmt.Errorf("%#x is no handle of this library: %w", handle, device.ErrInvalidArgument)
	}
	return entry{}, 0, err
}

// find returns the object of type T that a handle lies in, and the distance from its first byte.
func find[T object](h *handles, handle uint64) (T, uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, off, err := h.at(handle)
	if err != nil {
		var none T
		return none, 0, err
	}
	o, err := typed[T](e, handle)
	return o, off, err
}

// take is find of a whole object, and makes its handle invalid.
func take[T object](h *handles, handle uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none T
	e, off, err := h.at(handle)
	if err != nil {
		return none, err
	}
	o, err := typed[T](e, handle)
	if err == nil && off != 0 {
		err = fmt.Errorf("%#x is byte %d of a %s: free its first byte: %w", handle, off, o.kind(),
			device.ErrInvalidArgument)
	}
	if err != nil {
		return none, err
	}
	h.remove(e)
	return o, nil
}

func typed[T object](e entry, handle uint64) (T, error) {
	o, is := e.object.(T)
	if !is {
		return o, fmt.Errorf("%#x is the handle of a %s, not of a %s: %w", handle, e.object.kind(), o.kind(),
			device.ErrInvalidArgument)
	}
	return o, nil
}

// takeAll makes the handles invalid of objects that a function selects, and returns the objects,
// the newest first: the objects of a parent before it.
func (h *handles) takeAll(selects func(object) bool) (all []object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []entry
	for slot, e := range h.open {
		if slot == e.first && selects(e.object) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(b.first, a.first) })
	for _, e := range found {
		h.remove(e)
		all = append(all, e.object)
	}
	return all
}

// remove makes the handle of an object invalid. mu is held.
func (h *handles) remove(e entry) {
	for i := range e.slots {
		delete(h.open, e.first+i)
	}
}
