package shard

import (
	"testing"
	"testing/synctest"
	"time"
)

// askedNow reports whether the shard was asked to park.
func (s *OpenShard) askedNow() bool {
	select {
	case <-s.park:
		return true
	default:
		return false
	}
}

// TestOpenings: the open shard that is idle the longest is parked for another. A busy shard is not
// parked; if all are busy, another shard is opened beyond the bound.
func TestOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOpenShards(3)
		var all []*OpenShard
		for range 3 {
			all = append(all, o.Open(t.Context()))
		}
		all[0].busy()
		<-time.After(time.Second) // of the fake clock
		all[1].idle()
		<-time.After(time.Second) // of the fake clock
		all[2].idle()
		<-time.After(time.Second) // of the fake clock
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
		// More shards are open than the bound allows: the first idle one is parked.
		fourth.idle()
		<-time.After(time.Second) // of the fake clock
		o.Trim()
		if !fourth.askedNow() || fifth.askedNow() {
			t.Error("the idle one of too many is not parked")
		}
	})
}
