package swarms

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestIdentity: two swarms of one id are never the same, and nothing of them is called the same
// where records have nonces.
func TestIdentity(t *testing.T) {
	now := time.Date(2026, 11, 22, 18, 0, 0, 1, time.UTC)
	old, later := Swarm{ID: "s", Created: now}, Swarm{ID: "s", Created: now.Add(1)}
	if old.Key() != "s" || old.Same(later) || !old.Same(Swarm{ID: "s", Created: now.In(time.FixedZone("x", 3600))}) {
		t.Errorf("%s, %s", old.Identity(), later.Identity())
	}
	a, b := Swarm{ID: "s", Created: now, Nonce: NewNonce()}, Swarm{ID: "s", Created: now, Nonce: NewNonce()}
	if a.Key() == b.Key() || a.Same(b) || a.Same(old) || !a.Same(Swarm{ID: "s", Nonce: a.Nonce, Base: &Base{}}) {
		t.Errorf("%s, %s", a.Key(), b.Key())
	}
	if other := a; a.Same(func() Swarm { other.Shards = 2; return other }()) {
		t.Error("another number of shards is taken for a change")
	}
	for key, good := range map[string]bool{
		a.Key(): true, "s": true, "s=0123456789abcdef": true, "": false, "=0123456789": false, "s=": false,
		"s=short": false, "s=ABCDEFGHIJ": false, "s=../../../etc": false,
		"s/..=0123456789": false, "s.0": false, "s=0123456789=0": false, "s=" + strings.Repeat("a", maxNonce+1): false,
	} {
		if err := CheckKey(key); (err == nil) != good {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestOwnerJob: records of earlier versions do not say whose run they are.
func TestOwnerJob(t *testing.T) {
	for want, s := range map[string]Swarm{
		"mine": {ID: "mine", Nonce: "0123456789", Owner: "mine"},
		"run":  {ID: "run", Spec: json.RawMessage(`{"agents_per_group":16}`)},
	} {
		if got := s.OwnerJob(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, s := range []Swarm{
		{ID: "lasting", Nonce: "0123456789", Spec: json.RawMessage(`{}`)},
		{ID: "former", Spec: json.RawMessage(`{"agents":40}`)},
		{ID: "former", Spec: json.RawMessage(`{"groups":4}`)},
		{ID: "broken", Spec: json.RawMessage(`{`)},
	} {
		if got := s.OwnerJob(); got != "" {
			t.Errorf("%s belongs to job %q", s.ID, got)
		}
	}
}
