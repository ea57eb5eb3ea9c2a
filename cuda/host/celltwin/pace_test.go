package celltwin

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPace: a group knows less after an interval that is unusual, knows it again after some blocks,
// and gets used to gaps that come again.
func TestPace(t *testing.T) {
	const block, blocks = 64, 100
	var (
		p    pace
		at   = int64(1_700_000_000e9)
		seen = 0
	)
	rows := func(n int, interval time.Duration) {
		for range n {
			at += int64(interval)
			seen++
			p.see(at, 1/float32(seen), block, float32(min(seen/block, blocks)))
		}
	}
	rows(blocks*block, time.Minute)
	if p.known < blocks-1 {
		t.Fatalf("known %v of %d blocks at regular intervals", p.known, blocks)
	}
	p.see(at, 1/float32(seen), block, blocks)
	if p.known < blocks-1 {
		t.Errorf("known %v after an equal time, want %d", p.known, blocks)
	}
	for _, of := range []struct {
		name       string
		interval   time.Duration
		rows       int
		least, max float32
	}{
		{"a missing row", 2 * time.Minute, 1, 1, 20},
		{"usual rows", time.Minute, blocks * block / 2, blocks, blocks},
		{"a day without rows", 24 * time.Hour, 1, 0, 0.1},
		{"4 blocks of usual rows", time.Minute, 4 * block, 8, 8.1},
		{"usual rows", time.Minute, blocks * block, blocks, blocks},
		{"a clock that is set back", -time.Hour, 1, 0, 0.1},
		{"usual rows", time.Minute, blocks * block, blocks, blocks},
		{"another rate", 20 * time.Second, block, 0, 3},
		{"rows at that rate", 20 * time.Second, blocks * block, blocks, blocks},
	} {
		if rows(of.rows, of.interval); p.known < of.least || p.known > of.max {
			t.Errorf("%s: known %v, want %v to %v", of.name, p.known, of.least, of.max)
		}
	}
	for range 30 { // nights
		rows(1, 14*time.Hour)
		rows(600, 20*time.Second)
	}
	if rows(1, 14*time.Hour); p.known < 15 {
		t.Errorf("known %v after a gap of every night", p.known)
	}
}

// TestPaceOfEvents: events at random times are their own usual case.
func TestPaceOfEvents(t *testing.T) {
	var p pace
	r, at := rand.New(rand.NewPCG(7, 7)), int64(0)
	little := 0
	for i := range 20000 {
		at += int64(r.ExpFloat64() * 60e9)
		p.see(at, 1/float32(i+1), 64, float32(i/64))
		if i > 2000 && p.known < 10 {
			little++
		}
	}
	if little > 900 {
		t.Errorf("little is known at %d of 18000 events", little)
	}
}
