package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// payloads is a payload.Source in memory, by id. Payloads come late, in another order than that of
// their entries.
type payloads struct {
	mu    sync.Mutex
	all   map[string][]byte
	away  bool // none can be fetched
	calls int
}

func (p *payloads) Fetch(_ context.Context, b swarms.Bulk, into []byte) error {
	p.mu.Lock()
	p.calls++
	data, away, calls := p.all[b.ID], p.away, p.calls
	p.mu.Unlock()
	time.Sleep(time.Duration(calls%3) * time.Millisecond)
	if away || data == nil {
		return errors.New("away")
	}
	copy(into, data)
	return nil
}

func (p *payloads) leave(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// beside returns a log whose observations are beside it, and puts them into p.
func beside(t *testing.T, p *payloads, all []swarms.Entry) (out []swarms.Entry) {
	t.Helper()
	p.all = map[string][]byte{}
	for _, e := range all {
		if e.Kind == swarms.EntryObserve {
			b := swarms.Bulk{
				Version: jobs.Version, Place: "127.0.0.1:4280", ID: fmt.Sprintf("%0*x", swarms.BulkID, e.Seq),
				Token: make([]byte, swarms.BulkToken), Bytes: len(e.Data), Memory: len(e.Data),
				Sums: swarms.BulkSums(e.Data),
			}
			p.all[b.ID] = e.Data
			data, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			e.Kind, e.Data = swarms.EntryBulk, data
		}
		out = append(out, e)
	}
	return out
}

// TestBulk: a log whose observations are beside it has the answers of one that has them in it, also
// over a checkpoint, a replay without one, and a time in which they cannot be fetched.
func TestBulk(t *testing.T) {
	const half, whole = 31, 60
	d := openHost(t)
	want := answersOf(t, d, whole)
	for name, stored := range map[string]bool{"checkpoint": true, "replay": false} {
		t.Run(name, func(t *testing.T) {
			src := &payloads{}
			o := Options{Payloads: src}
			if stored {
				o.Checkpoints = &oneDisk{disk: newDisk()}
			}
			p := newTestServer(t, d, o, 0)
			entries := beside(t, src, worked(t, whole))
			p.in.all = slices.Clone(entries[:half])
			if err := p.serve(t, nil, half); !errors.As(err, new(*Rest)) {
				t.Fatalf("%v\n%s", err, &p.log)
			}
			p.in.mu.Lock()
			p.in.all = slices.Clone(entries)
			p.in.mu.Unlock()
			fetched := src.calls
			src.leave(true)
			var back sync.WaitGroup
			defer back.Wait()
			back.Go(func() {
				deadline := time.After(10 * time.Second)
				for {
					w, is := p.open.Waiting("key")
					if is && w.Shard == "key" && w.Error == "away" && w.Entry > 0 {
						break
					}
					select {
					case <-deadline:
						t.Error("the shard does not say that it waits")
						src.leave(false)
						return
					case <-time.After(time.Millisecond):
					}
				}
				if n := len(p.out.entries()); n > half+2 {
					t.Errorf("%d answers while the bytes of entry %d are away", n, half+3)
				}
				src.leave(false)
			})
			if err := p.serve(t, nil, whole); !errors.As(err, new(*Rest)) {
				t.Fatalf("%v\n%s", err, &p.log)
			}
			back.Wait()
			if got := texts(p.out); !slices.Equal(got, want) {
				t.Fatal("the answers are not those of a log with its observations")
			}
			if _, is := p.open.Waiting("key"); is {
				t.Error("a parked shard waits")
			}
			again := src.calls - fetched
			if stored && again > 4*(whole-half) {
				t.Errorf("%d fetches for %d entries behind a checkpoint", again, whole-half)
			}
		})
	}
}

// TestBulkRefused: an entry whose description or whose bytes are invalid is refused, and the later
// ones are applied.
func TestBulkRefused(t *testing.T) {
	d := openHost(t)
	src := &payloads{}
	p := newTestServer(t, d, Options{Payloads: src}, 0)
	entries := beside(t, src, worked(t, 7))
	entries[0].Data = []byte(`{"v":1}`)
	for id := range src.all { // no observations at all
		src.all[id] = make([]byte, len(src.all[id]))
	}
	p.in.all = entries
	if err := p.serve(t, nil, 7); !errors.As(err, new(*Rest)) {
		t.Fatalf("%v\n%s", err, &p.log)
	}
	for i, e := range p.out.entries() {
		if refused := i%3 == 0; (e.Kind == swarms.EntryRejected) != refused {
			t.Errorf("answer %d is a %s: %s", i+1, e.Kind, e.Data)
		}
	}
}
