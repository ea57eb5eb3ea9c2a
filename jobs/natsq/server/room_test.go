package server

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestRoom: a disk fills up and is emptied; each check is followed by what the server does.
func TestRoom(t *testing.T) {
	type look struct {
		n    int64
		want verdict
	}
	for name, c := range map[string]struct {
		refuses bool
		looks   []look
	}{
		"much room":   {true, []look{{1 << 40, diskGoOn}, {1 << 40, diskGoOn}}},
		"just enough": {true, []look{{tightFree, diskGoOn}, {tightFree, diskGoOn}}},
		"too little": {true, []look{
			{tightFree - 1, diskRefuse},
			{tightFree - 1, diskRefuse},
			{tightFree, diskRefuse},
		}},
		"full at once":           {true, []look{{minFree - 1, diskFull}}},
		"nearly full":            {true, []look{{minFree, diskRefuse}, {minFree - 1, diskFull}}},
		"another's, full":        {false, []look{{minFree - 1, diskFull}}},
		"another's, nearly full": {false, []look{{tightFree, diskGoOn}, {minFree, diskGoOn}, {easyFree, diskGoOn}}},
		"soon":                   {true, []look{{tightFree + 300, diskGoOn}, {tightFree + 200, diskGoOn}}},
		"too soon":               {true, []look{{tightFree + 300, diskGoOn}, {tightFree + 199, diskRefuse}}},
		"more than before": {true, []look{
			{tightFree, diskGoOn},
			{tightFree + 100, diskGoOn},
			{tightFree, diskRefuse},
		}},
		"enough again": {true, []look{
			{tightFree - 1, diskRefuse},
			{easyFree, diskRefuse},
			{easyFree + 1, diskAccept},
			{easyFree + 1, diskGoOn},
		}},
		"tight again": {true, []look{
			{tightFree - 1, diskRefuse},
			{easyFree + 1, diskAccept},
			{tightFree - 1, diskRefuse},
		}},
		"what a writer left": {true, []look{
			{1 << 30, diskGoOn},
			{20 << 20, diskRefuse},
			{24 << 20, diskRefuse},
			{24<<20 + 1, diskAccept},
		}},
		"from the least there was": {true, []look{
			{1 << 30, diskGoOn},
			{20 << 20, diskRefuse},
			{10 << 20, diskRefuse},
			{14 << 20, diskRefuse},
			{14<<20 + 1, diskAccept},
		}},
		"less meanwhile": {true, []look{
			{1 << 30, diskGoOn},
			{20 << 20, diskRefuse},
			{10 << 20, diskRefuse},
			{12 << 20, diskRefuse},
			{12<<20 + 1, diskRefuse},
		}},
	} {
		r := room{refuses: c.refuses}
		for i, l := range c.looks {
			if got := r.look(l.n); got != l.want {
				t.Errorf("%s: look %d at %d bytes: %d, want %d (%+v)", name, i, l.n, got, l.want, r)
			}
		}
	}
	if minFree != 3<<20 || tightFree != 8<<20 || easyFree != 12<<20 || startFree != 12<<20 {
		t.Error("operations.md says 3, 8 and 12 MiB")
	}
	if n, err := free(t.TempDir()); n <= 0 || err != nil {
		t.Errorf("%d bytes are free, %v", n, err)
	}
	if _, err := free(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestRefuseAccount: an account that may store nothing may store again what it might before, and no
// other limit of it changes.
func TestRefuseAccount(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: InProcess})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := s.ns.GlobalAccount()
	before := a.JetStreamUsage().Limits
	held := limits{}
	for range 2 { // as the watch does with each check
		s.refuse(held)
		now := a.JetStreamUsage().Limits
		want := before
		want.MaxStore = 0
		if now != want || len(held) != 1 || held[a.Name][""] != before {
			t.Errorf("refused: %+v, want %+v, held %+v", now, want, held)
		}
	}
	s.accept(limits{"another": held[a.Name]})
	if now := a.JetStreamUsage().Limits; now.MaxStore != 0 {
		t.Errorf("another account is accepted: %+v", now)
	}
	s.accept(held)
	if now := a.JetStreamUsage().Limits; now != before {
		t.Errorf("accepted: %+v, want %+v", now, before)
	}
}
