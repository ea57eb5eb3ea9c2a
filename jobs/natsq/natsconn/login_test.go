package natsconn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestNoContext: a context of the nats tool that is selected on the machine is not used by a login
// that names none.
func TestNoContext(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	if err := os.MkdirAll(filepath.Join(dir, "nats", "context"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"context.txt": "mine", "context/mine.json": `{"token":"right"}`} {
		if err := os.WriteFile(filepath.Join(dir, "nats", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Token: "right"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for l, want := range map[Login]bool{{}: false, {Context: "mine"}: true, {Token: "right"}: true} {
		c, err := Open(t.Context(), Options{URL: s.URL(), Login: l})
		if err == nil {
			c.Close()
		}
		if (err == nil) != want {
			t.Errorf("context %q: %v", l.Context, err)
		}
	}
}
