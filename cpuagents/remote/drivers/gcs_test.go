package drivers_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestGCSPut: a part is stored as a whole under its name and type, and replaces an earlier part.
func TestGCSPut(t *testing.T) {
	g := servertest.NewGCS(t)
	o, err := remote.OpenStore("a store", "gs://bucket/out/",
		remote.StoreSpec{Endpoint: g.URL, Account: "env:ACCOUNT"}, remote.MaxListBytes, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("remote.OpenStore: %v, want no error", err)
	}
	defer o.Close()
	for _, text := range []string{"one", "another"} {
		if err := o.Put(fixture.Within(t), "part-1.csv", "text/csv", []byte(text)); err != nil {
			t.Fatalf("o.Put: %v, want no error", err)
		}
		if got, err := g.GetObject("bucket", "out/part-1.csv"); err != nil || string(got.Content) != text ||
			got.ContentType != "text/csv" {
			t.Errorf("the object is %+v, %v, want the text as CSV", got, err)
		}
	}
	g.Mu.Lock()
	g.Busy = 1
	g.Mu.Unlock()
	if err := o.Put(fixture.Within(t), "x", "text/csv", []byte("x")); !jobs.Retryable(err) &&
		jobs.AsError(err).Code != jobs.CodeIO {
		t.Errorf("a store that is busy: %v", err)
	}
	g.Check(t)
}
