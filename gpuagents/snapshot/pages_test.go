package snapshot_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// lent is memory that a test lends to Save and Load, and counts.
type lent struct {
	bytes []byte
	open  *int
}

func (l *lent) Size() int64   { return int64(len(l.bytes)) }
func (l *lent) Bytes() []byte { return l.bytes }

func (l *lent) Close() error {
	*l.open--
	l.bytes = nil
	return nil
}

// Save and Load work in pinned host memory as in memory of Go, continue without pinned memory when
// there is no more, and release all of it.
func TestHost(t *testing.T) {
	store, open, left := open(t, t.TempDir()), 0, 0
	p := newPages(t, kernels.AgentLeakyVars(), 100, 5000, 4096)
	for i := range p.data {
		p.data[i] = byte(i * i >> 3)
	}
	m, want, err := snapshot.Save(t.Context(), store, head("plain"), &p.Pages)
	if err != nil {
		t.Fatal(err)
	}
	clear(p.data) // gaps between variables are not saved
	if err := snapshot.Load(t.Context(), store, m, &p.Pages); err != nil {
		t.Fatal(err)
	}
	p.Host = func(bytes int64) (device.HostBuffer, error) {
		if left--; left < 0 {
			return nil, errors.New("no more")
		}
		open++
		return &lent{make([]byte, bytes), &open}, nil
	}
	for _, left = range []int{0, 1, 100} {
		lends := left > 0
		if err := store.Remove(t.Context(), "plain"); err != nil {
			t.Fatal(err)
		}
		m, digest, err := snapshot.Save(t.Context(), store, head("plain"), &p.Pages)
		if err != nil || digest != want || open != 0 || lends && left == 100 {
			t.Fatalf("Save: %v; the same digest: %v; %d buffers open, %d left", err, digest == want, open, left)
		}
		before := bytes.Clone(p.data)
		clear(p.data)
		left = 2
		if err := snapshot.Load(t.Context(), store, m, &p.Pages); err != nil || open != 0 {
			t.Fatalf("Load: %v; %d buffers open", err, open)
		}
		if !bytes.Equal(before, p.data) {
			t.Fatal("Load: other pages than before")
		}
	}
}
