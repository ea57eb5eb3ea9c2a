package source

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCollection: a document ends after its time, by its messages, or at the end of the reading,
// and the end of the context is no end of a document.
func TestCollection(t *testing.T) {
	c, err := newCollector("nats:S/s", "", "messages", SubjectSpec{
		Messages: 5, For: 3600, BatchMessages: 2, BatchSeconds: 0.001,
	}, false)
	if err != nil {
		t.Fatalf("newCollector: %v", err)
	}
	var p progress
	if err := c.restore(position{}, &p, &p); err != nil || time.Until(p.Until) < 59*time.Minute {
		t.Fatalf("restore sets the end %v, %v", p.Until, err)
	}
	until := p.Until
	if err := c.restore(position{State: []byte(`{}`)}, &p, &p); err != nil || !p.Until.Equal(until) {
		t.Errorf("a further call has the end %v, %v, want %v", p.Until, err, until)
	}
	wait, d := c.collect(t.Context(), &p)
	if d.add(10, 1); d.full() {
		t.Error("a document of one message of two is full")
	}
	select {
	case <-wait.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("a document does not end after its time")
	}
	if !errors.Is(context.Cause(wait), errOver) || time.Since(c.arrived()) > time.Minute {
		t.Errorf("a document ends with %v, and its first message came at %v", context.Cause(wait), c.arrived())
	}
	d.close()
	_, d = c.collect(t.Context(), &p)
	d.add(10, 1)
	if d.add(10, 3); !d.full() {
		t.Error("a document of two messages is not full")
	}
	d.close()
	if at, err := c.position(p, p, "ndjson", nil); err != nil || !at.Done || p.Count != 5 {
		t.Errorf("behind %d messages of 5 the position is %+v, %v", p.Count, at, err)
	}
	p = progress{Until: time.Now().Add(-time.Second)}
	wait, d = c.collect(t.Context(), &p)
	if !errors.Is(context.Cause(wait), errOver) {
		t.Errorf("a document behind the end of the reading ends with %v", context.Cause(wait))
	}
	d.close()
	ctx, cancel := context.WithCancel(t.Context())
	wait, d = c.collect(ctx, &progress{})
	defer d.close()
	if cancel(); wait.Err() == nil || errors.Is(context.Cause(wait), errOver) {
		t.Errorf("the end of the context ends a document with %v", context.Cause(wait))
	}
}
