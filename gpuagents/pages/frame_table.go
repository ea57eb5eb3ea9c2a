package pages

import "github.com/exoswarm/exoswarm/cuda/device"

// frameTable tells kernels in which frame each pinned page is. The device has a copy of it.
type frameTable struct {
	frames   []uint32 // by page; see kernels.AgentHostBit
	from, to int      // the part that has changed since flush
}

func (t *frameTable) set(page uint64, frame int) {
	at := int(page)
	if t.frames[at] == uint32(frame) {
		return
	}
	t.frames[at] = uint32(frame)
	if t.from == t.to {
		t.from, t.to = at, at+1
		return
	}
	t.from, t.to = min(t.from, at), max(t.to, at+1)
}

func (t *frameTable) flush(copied device.Buffer) error {
	if t.from == t.to {
		return nil
	}
	if err := copied.Write(4*int64(t.from), device.Bytes(t.frames[t.from:t.to])); err != nil {
		return err
	}
	t.from, t.to = 0, 0
	return nil
}
