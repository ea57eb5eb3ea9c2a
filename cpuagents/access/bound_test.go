package access

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// get returns the text of a secret, or the text of the error.
func get(s *Store, ref string) string {
	v, err := s.Get(ref)
	if err != nil {
		return err.Error()
	}
	return v.Reveal()
}

// TestRefusals: each reason for which there is no secret has its sentence.
func TestRefusals(t *testing.T) {
	s, dir := store(t)
	exact := strings.Repeat("x", maxSize)
	t.Setenv(Prefix+"EMPTY", "")
	t.Setenv(Prefix+"LARGE", exact+"x")
	t.Setenv(Prefix+"EXACT", exact)
	for name, text := range map[string]string{
		"exact": exact, "line": exact[1:] + "\n", "one": "x",
		"ends": "x\r\n\r\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v, want no error", err)
		}
	}
	for ref, want := range map[string]string{
		"env:EXACT": exact, "file:exact": exact, "file:line": exact[1:], "file:one": "x", "file:ends": "x",
		"env:EMPTY": "set EXOSWARM_SECRET_EMPTY, at most 65536 bytes", "env:LARGE": "set EXOSWARM_SECRET_LARGE, at " +
			"most 65536 bytes", "env:NONE": "set EXOSWARM_SECRET_NONE, at most 65536 bytes",
		"file:nothing": "put a file of that name into its folder", "file:dir": "its file must be a regular one",
		"file:big": "its file must have 1 to 65536 bytes", "file:empty": "its file must have 1 to 65536 bytes",
		"file:link": "its file cannot be read",
		"env:":      ErrReference.Error(), "env:A/B": ErrReference.Error(), "file:a/b": ErrReference.Error(),
		"file:.x": ErrReference.Error(), "exec:id": ErrReference.Error(), ":x": ErrReference.Error(),
		"x":                                ErrReference.Error(),
		"file:" + strings.Repeat("a", 129): ErrReference.Error(), "file:" + strings.Repeat("a", 128): "put a file " +
			"of that name into its folder",
	} {
		got := get(s, ref)
		if !strings.HasSuffix(got, want) || len(want) > 1000 && got != want || len(want) < 4 && got != want {
			t.Errorf("%q: %.200s, want %.200s", ref, got, want)
		}
		if v, err := s.Get(ref); err != nil && v.Reveal() != "" {
			t.Errorf("%q: a value beside an error", ref)
		}
	}
	without, err := OpenSecrets("")
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	if got := get(without, "file:one"); !strings.HasSuffix(got, "start it with --secrets DIR") {
		t.Errorf("without a folder: %q, want the flag to set", got)
	}
	if err := errors.Join(without.Close(), without.Close()); err != nil {
		t.Errorf("joined errors: %v, want no error", err)
	}
	if _, err := OpenSecrets(filepath.Join(dir, "nothing")); err == nil ||
		!strings.Contains(err.Error(), "folder of secrets") {
		t.Errorf("Open: %v, want %q in its text", err, "folder of secrets")
	}
}

// TestClosed: a store that is closed reads no file, and a read leaves no file open.
func TestClosed(t *testing.T) {
	s, _ := store(t)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatalf("os.ReadDir: %v, want no error", err)
		}
		return len(entries)
	}
	before := open()
	for range 32 {
		if got := get(s, "file:token"); got != "hunter2" {
			t.Fatalf("the secret is %q, want hunter2", got)
		}
	}
	if after := open(); after > before+16 {
		t.Errorf("%d files are open, %d before", after, before)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("s.Close: %v, want no error", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if v, err := s.Get("file:token"); !errors.Is(err, ErrMissing) {
		t.Errorf("after Close: %q, %v, want %v", v.Reveal(), err, ErrMissing)
	}
}

// TestTenants: the jobs of a tenant have its own secrets, under its name, and nobody else's.
func TestTenants(t *testing.T) {
	s, dir := store(t)
	t.Setenv(Prefix+"A", "own")
	t.Setenv(Prefix+"acme__A", "acme's")
	t.Setenv(Prefix+"x__y__A", "x's or x__y's")
	if err := os.Mkdir(filepath.Join(dir, "acme"), 0o700); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "acme", "token"), []byte("acme's file"), 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	for _, c := range []struct{ tenant, ref, want string }{
		{"", "env:A", "own"},
		{"default", "env:A", "own"},
		{"acme", "env:A", "acme's"},
		{"", "file:token", "hunter2"},
		{"default", "file:token", "hunter2"},
		{"acme", "file:token", "acme's file"},
	} {
		if got := get(s.For(c.tenant), c.ref); got != c.want {
			t.Errorf("%s of tenant %q: %q, want %q", c.ref, c.tenant, got, c.want)
		}
	}
	for _, c := range []struct{ tenant, ref, want string }{
		{"other", "env:A", "set EXOSWARM_SECRET_other__A"},
		{"other", "file:token", "put a file"},
		{"x__y", "env:A", "has __ in it"},
	} {
		if v, err := s.For(c.tenant).Get(c.ref); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of tenant %q: %q, %v", c.ref, c.tenant, v.Reveal(), err)
		}
	}
	var none *Store
	if got := get(none.For("acme"), "env:A"); got != "acme's" {
		t.Errorf("without a store: %q", got)
	}
	if v, err := none.For("").Get("file:token"); !errors.Is(err, ErrMissing) {
		t.Errorf("without a store: %q, %v", v.Reveal(), err)
	}
	if got := get(s, "env:A"); got != "own" {
		t.Errorf("the original has changed: %q", got)
	}
}

// TestBind: a secret that is bound goes to its hosts alone, for jobs; the agent's own use is free.
func TestBind(t *testing.T) {
	s, _ := store(t)
	t.Setenv(Prefix+"A", "own")
	t.Setenv(Prefix+"acme__A", "acme's")
	t.Setenv(Prefix+"FREE", "free")
	if err := s.Bind([]string{
		"name=A,host=API.example", "name=A,host=*.data.example",
		"tenant=acme,name=A,host=acme.example",
	}); err != nil {
		t.Fatalf("s.Bind: %v, want no error", err)
	}
	for _, c := range []struct {
		tenant, host string
		want         string // "" for a refusal
	}{
		{"", "api.example", "own"},
		{"", "api.EXAMPLE.", "own"},
		{"", "x.data.example", "own"},
		{"", "a.b.data.example", "own"},
		{"", "data.example", ""},
		{"", "xdata.example", ""},
		{"", "evil.example", ""},
		{"", "api.example.evil.example", ""},
		{"", "", ""},
		{"", "acme.example", ""},
		{"acme", "acme.example", "acme's"},
		{"acme", "api.example", ""},
		{"acme", "", ""},
		{"acme", "x.acme.example", ""},
	} {
		v, err := s.For(c.tenant).At(c.host).Get("env:A")
		if v.Reveal() != c.want || (err == nil) != (c.want != "") || err != nil &&
			(!errors.Is(err, ErrSecretHost) || !strings.Contains(err.Error(), "env:A")) {
			t.Errorf("for %q at %q: %q, %v", c.tenant, c.host, v.Reveal(), err)
		}
	}
	if got := get(s, "env:A"); got != "own" {
		t.Errorf("the agent's own use: %s", got)
	}
	if got := get(s.For("").At("evil.example"), "env:FREE"); got != "free" {
		t.Errorf("one that is not bound: %s", got)
	}
	if _, used, err := s.For("").At("evil.example").Expand("Bearer {env:A}"); !errors.Is(err, ErrSecretHost) || !used {
		t.Errorf("expanded: %v, %v", used, err)
	}
	if v, used, err := s.For("").At("api.example").Expand("Bearer {env:A}"); err != nil || !used ||
		v.Reveal() != "Bearer own" {
		t.Errorf("expanded: %q, %v, %v", v.Reveal(), used, err)
	}
	for _, text := range []string{
		"", "A", "name=A", "host=x", "A,host=x", "name=,host=x", "name=A,host=", "name=a/b,host=x", "tenant=acme",
		"tenant=acme,A,host=x", "tenant=acme,name=A", "tenant=,name=A,host=x", "tenant=a b,name=A,host=x",
		"tenant=*,name=A,host=x",
	} {
		var fresh Store
		if err := fresh.Bind([]string{text}); err == nil || !strings.Contains(err.Error(), "--secret") {
			t.Errorf("%q: fresh.Bind: %v, want %q in its text", text, err, "--secret")
		}
	}
}
