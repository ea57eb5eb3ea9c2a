package shard

import (
	"testing"
	"testing/synctest"
	"time"
)

// asked reports whether a shard was asked to park.
func (s *OpenShard) askedNow() bool {
	select {
	case <-s.park:
		return true
	default:
		return false
	}
}

// TestOpenings: of shards that are open the one that is idle the longest is parked for another. One
// that has something to do is not, and where all have, another is opened beside them.
func TestOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOpenShards(3)
		var all []*OpenShard
		for range 3 {
			all = append(all, o.Open(t.Context()))
		}
		all[0].busy()
		time.Sleep(time.Second)
		all[1].idle()
		time.Sleep(time.Second)
		all[2].idle()
		time.Sleep(time.Second)
		began := time.Now()
		taken := make(chan *OpenShard)
		go func() { taken <- o.Open(t.Context()) }()
		synctest.Wait()
		if all[0].askedNow() || all[2].askedNow() || !all[1].askedNow() {
			t.Fatal("another shard than the one that is idle the longest is parked")
		}
		o.Close(all[1])
		fourth := <-taken
		if d := time.Since(began); d != 0 {
			t.Errorf("opened after %v", d)
		}
		for _, s := range []*OpenShard{all[0], all[2], fourth} {
			s.busy()
		}
		began = time.Now()
		fifth := o.Open(t.Context())
		fifth.busy()
		if d := time.Since(began); d != openPatience {
			t.Errorf("opened beside busy ones after %v", d)
		}
		for _, s := range []*OpenShard{all[0], all[2], fourth, fifth} {
			if s.askedNow() {
				t.Error("a busy shard is parked")
			}
		}
		// There are more than are kept open: the first that has nothing to do is parked.
		fourth.idle()
		time.Sleep(time.Second)
		o.Trim()
		if !fourth.askedNow() || fifth.askedNow() {
			t.Error("the idle one of too many is not parked")
		}
	})
}
