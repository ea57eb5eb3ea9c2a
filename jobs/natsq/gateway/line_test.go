package gateway

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// TestLine: requests of a tenant that are not answered leave hands to others, a wait gives its hand
// back, and tenants take turns.
func TestLine(t *testing.T) {
	began, end := make(chan owner, 2*gatewayLine), make(chan struct{})
	wait := make(chan struct{})
	var l *requestLine
	l = newRequestLine(func(_ *nats.Msg, from owner) {
		at := &requestPlace{l: l, from: from}
		defer at.leave()
		began <- from
		if from == "waits" {
			if err := at.park(); err != nil {
				t.Error(err)
			}
			<-wait
			return
		}
		<-end
	})
	add := func(from owner, n int) (taken int) {
		for range n {
			if l.add(&nats.Msg{}, from) {
				taken++
			}
		}
		return taken
	}
	if n := add("acme", 2*ownerLine); n != tenantWorkers+ownerLine {
		t.Errorf("%d requests of a tenant have a place, want %d", n, tenantWorkers+ownerLine)
	}
	for range tenantWorkers {
		<-began
	}
	add("umbrella", 1)
	if from := <-began; from != "umbrella" {
		t.Errorf("%s has a hand", from)
	}
	add("waits", ownerLine)
	for range ownerLine { // more than there are hands
		if from := <-began; from != "waits" {
			t.Errorf("%s has a hand", from)
		}
	}
	close(end)
	close(wait)
	for range ownerLine {
		<-began
	}
	l.ended.Wait()
	if len(l.of) != 0 || l.busy != 0 || l.waits != 0 || l.length != 0 {
		t.Errorf("left: %d tenants, %d busy, %d waits, %d in line", len(l.of), l.busy, l.waits, l.length)
	}
}
