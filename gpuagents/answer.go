package gpuagents

import "github.com/exoswarm/exoswarm/jobs/batch"

// answer is what is written for an entry that was applied.
type answer struct {
	kind         string
	data         []byte
	body         interface{ Encode() ([]byte, error) } // what data is yet to be made of; nil: nothing
	observations int                                   // that were applied
	dropped      [len(batch.Reasons)]int               // the others, by the reason
	halved       int                                   // how often they were too many for the device's memory
}

// encoded is the answer with its data.
func (a answer) encoded() (answer, error) {
	if a.body == nil {
		return a, nil
	}
	data, err := a.body.Encode()
	a.data, a.body = data, nil
	return a, err
}
