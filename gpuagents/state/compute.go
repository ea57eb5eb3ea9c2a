package state

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// computed answers the data of an entry by a computer.
func computed(ctx context.Context, c *computer, data []byte) (Answer, error) {
	want, err := swarms.DecodeCompute(data)
	if err != nil {
		return Answer{}, err
	}
	found, err := c.Compute(ctx, want)
	if err != nil {
		return Answer{}, err
	}
	data, err = json.Marshal(found)
	return Answer{Kind: swarms.EntryComputed, Data: data}, err
}
