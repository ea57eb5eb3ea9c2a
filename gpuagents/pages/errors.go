package pages

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// MemoryError reports that there is too little memory for pages.
type MemoryError struct {
	bytes        int64  // bytes of all pages
	tables       int64  // bytes of the tables
	beside       int64  // bytes that the shard needs on the device in addition to its pages
	device, host int64  // bytes of the budget that are left
	short        int64  // bytes that are missing
	whole        bool   // all pages must be on the device
	where        string // the place where they are missing
}

// Error implements error.
func (e MemoryError) Error() string {
	switch {
	case e.beside > 0:
		return fmt.Sprintf("agents that have neighbours are all on one device: their pages take %d bytes there, and "+
			"what their ticks need beside them %d; %d are free, %d too few: use fewer agents, or fewer links, or an "+
			"agent process with more device memory", e.bytes+e.tables, e.beside, e.device, e.short)
	case e.whole:
		return fmt.Sprintf("residency: gpu keeps all its pages on the device: they and its tables take %d bytes; %d "+
			"are free there, %d too few: use fewer agents, an agent process with more device memory, or leave "+
			"residency out", e.bytes+e.tables, e.device, e.short)
	}
	tables := ""
	if e.tables > 0 {
		tables = fmt.Sprintf(" and its tables %d", e.tables)
	}
	return fmt.Sprintf("its pages take %d bytes%s; there are %d for them on the device and %d in host memory, %d too "+
		"few %s: raise the memory for pages, give the agent process a data folder, so that swarms give frames to each "+
		"other, or use fewer agents", e.bytes, tables, e.device, e.host, e.short, e.where)
}

// Refusal returns the error as the answer to the owner of a swarm.
func (e MemoryError) Refusal() error { return jobs.Errorf(jobs.CodeDevice, "%v", e) }

// ErrResidency marks a page that is not on the device although it claims to be.
var ErrResidency = errors.New("a page is not on the device as claimed")
