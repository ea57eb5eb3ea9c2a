package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func store(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	sub := filepath.Join(dir, "secrets")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	for name, text := range map[string]string{
		"secrets/token": "hunter2\r\n", "secrets/empty": "\n",
		"outside": "hunter2", "secrets/big": strings.Repeat("x", maxSize+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v, want no error", err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(sub, "link")); err != nil {
		t.Fatalf("os.Symlink: %v, want no error", err)
	}
	if err := os.Mkdir(filepath.Join(sub, "dir"), 0o700); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	s, err := OpenSecrets(sub)
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, sub
}

func TestGet(t *testing.T) {
	t.Setenv(Prefix+"A", "hunter2")
	t.Setenv("PLAIN", "hunter2")
	s, _ := store(t)
	for _, ref := range []string{"env:A", "file:token"} {
		if v, err := s.Get(ref); err != nil || v.Reveal() != "hunter2" {
			t.Errorf("%s: %q, error %v; want hunter2", ref, v.Reveal(), err)
		}
	}
	for _, ref := range []string{
		"", "A", "env:", "env:PLAIN", "env:B", "env:A=B", "file:", "file:nothing", "file:../outside", "file:link",
		"file:dir", "file:empty",
		"file:big", "file:/etc/passwd", "file:.", "file:..", "exec:id", "file:a\x00b",
	} {
		v, err := s.Get(ref)
		if !errors.Is(err, ErrMissing) && !errors.Is(err, ErrReference) || v.Reveal() != "" {
			t.Errorf("%q: %q, error %v; want nothing, and %v or %v", ref, v.Reveal(), err, ErrMissing, ErrReference)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows it: %v", ref, err)
		}
	}
	without, err := OpenSecrets("")
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	if _, err := without.Get("file:token"); !errors.Is(err, ErrMissing) {
		t.Errorf("without.Get: %v, want %v", err, ErrMissing)
	}
}

func TestExpand(t *testing.T) {
	t.Setenv(Prefix+"A", "{env:B}")
	s, _ := store(t)
	v, used, err := s.Expand("Bearer {env:A}/{file:token} {x}")
	if err != nil || !used || v.Reveal() != "Bearer {env:B}/hunter2 {x}" {
		t.Errorf("Expand: %q, used %t, %v, want each reference replaced once", v.Reveal(), used, err)
	}
	if v, used, err := s.Expand("plain"); err != nil || used || v.Reveal() != "plain" {
		t.Errorf("%q, used %v, error %v; want the text as it is, and no use", v.Reveal(), used, err)
	}
	if v, _, err := s.Expand("{file:token}{env:NONE}"); !errors.Is(err, ErrMissing) || v.Reveal() != "" {
		t.Errorf("%q, error %v; want nothing, and %v", v.Reveal(), err, ErrMissing)
	}
}

// TestHidden: no way of printing shows a secret.
func TestHidden(t *testing.T) {
	v := Value{"hunter2"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "in", struct{ V Value }{v})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "in", []Value{v})
	data, err := json.Marshal(map[string]any{"v": v})
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	all := log.String() + string(data) + fmt.Sprint(v, &v, []Value{v}) +
		fmt.Sprintf("%s %v %+v %#v %q %x %d", v, v, v, v, v, v, v) + fmt.Errorf("%w %v", errors.New("x"), v).Error()
	if strings.Contains(all, "hunter2") || strings.Contains(all, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("the secret is in %q", all)
	}
}
