package state

import "github.com/exoswarm/exoswarm/jobs/batch"

// answer is what is written for an entry that was applied.
type Answer struct {
	Kind         string
	Data         []byte
	Body         interface{ Encode() ([]byte, error) } // what data is yet to be made of; nil: nothing
	Observations int                                   // that were applied
	Dropped      [len(batch.Reasons)]int               // the others, by the reason
	Halved       int                                   // how often they were too many for the device's memory
}

// encoded is the answer with its data.
func (a Answer) Encoded() (Answer, error) {
	if a.Body == nil {
		return a, nil
	}
	data, err := a.Body.Encode()
	a.Data, a.Body = data, nil
	return a, err
}
