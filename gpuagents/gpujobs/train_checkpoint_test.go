package gpujobs

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// FuzzCheckpoint: bytes of anybody are a checkpoint or an errCheckpoint, and what is written is
// read again.
func FuzzCheckpoint(f *testing.F) {
	c := &savedTraining{
		state: trainState{
			Digest: "d", Epochs: []gpujob.TrainEpoch{{Epoch: 1, Loss: 0.1, Validation: 1.0 / 3}}, Best: 1, Steps: 7,
			Done: 3, Sum: 1e-300, Count: 5, best: []byte{1, 2},
		},
		trainer: []byte{3, 4, 5},
	}
	b, err := c.encode()
	if err != nil {
		f.Fatal(err)
	}
	if got, err := decodeTraining(b); err != nil || !reflect.DeepEqual(got, c) {
		f.Fatalf("decoded %+v, %v, want %+v", got, err, c)
	}
	for _, b := range [][]byte{b, b[:len(b)-1], append(bytes.Clone(b), 0), []byte(checkpointMagic), nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeTraining(b)
		if err != nil {
			if !errors.Is(err, errCheckpoint) {
				t.Errorf("%v is no errCheckpoint", err)
			}
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		if d, err := decodeTraining(again); err != nil || !reflect.DeepEqual(d, c) {
			t.Errorf("decoded again %+v, %v, want %+v", d, err, c)
		}
	})
}
