package state

import (
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Answer is the answer to an entry that was applied.
type Answer struct {
	Kind         string                                // of the entry in the log of answers
	Data         []byte                                // of that entry
	Body         interface{ Encode() ([]byte, error) } // encodes to Data; nil: Data is complete
	Observations int                                   // that were applied
	Steps        int64                                 // of agents, by a tick
	Dropped      [len(batch.Reasons)]int               // the others, by reason
	Ticked       *swarms.Ticked                        // what a tick has done; nil: it is the answer to another entry
	Voted        *swarms.Voted                         // the decision of a vote; nil: the entry was another one
	Halved       int                                   // how often the device had no memory for the batch
}

// Encoded returns the answer with its data. Any goroutine may call it.
func (a Answer) Encoded() (Answer, error) {
	if a.Body == nil {
		return a, nil
	}
	data, err := a.Body.Encode()
	a.Data, a.Body = data, nil
	return a, err
}
