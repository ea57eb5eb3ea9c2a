package agents

import (
	"github.com/exoswarm/exoswarm/cuda/device"
)

// tellWarps is how many warps of agent_tell a multiprocessor is given. Each has a group at a time, and
// reads the rows of its agents one after another: fewer leave reads of memory waiting.
const tellWarps = 64

// launchTell updates the knowledge nodes of the groups of consecutive pages, and writes what their
// agents hear of them, as they are before the next step. It does nothing if they hear nothing. Groups
// are within a page, so pages may be told one set after another.
func (a *Agents) launchTell(pages []uint64) error {
	if a.tell == nil {
		return nil
	}
	const threads = 128
	args := append(a.head(false), device.Uint32(uint32(pages[0])), device.Uint32(uint32(len(pages))))
	for _, w := range a.cell.TellWords() {
		args = append(args, device.Uint32(w))
	}
	blocks := (len(pages)*a.layout.Slots*32 + threads - 1) / threads
	return a.stream.Launch(a.tell, a.shape(tellWarps*32/threads, threads, blocks), args...)
}
