package server_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// onDisk counts the files below a folder that hold a text.
func onDisk(t *testing.T, dir, text string) (n int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			n++
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKeys: what a server with a key stores cannot be read on its disk, streams from before the key
// are encrypted, a rotated key reads what the former one wrote, and a server without the key does
// not serve.
func TestKeys(t *testing.T) {
	const secret = "the quick brown fox, and nobody may read of it"
	dir, keys := t.TempDir(), filepath.Join(t.TempDir(), "keys")
	one, two := strings.Repeat("11", 32), strings.Repeat("22", 32)
	written := uint64(0)
	// use starts a server with these keys, reads all that was written before, and writes one entry
	// more.
	use := func(lines ...string) error {
		t.Helper()
		o := server.Options{Dir: dir, Port: server.InProcess}
		if len(lines) > 0 {
			if err := os.WriteFile(keys, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			if o.Keys, err = keyring.Read(keys); err != nil {
				t.Fatal(err)
			}
		}
		s, err := server.Start(t.Context(), o)
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c, err := natsq.Connect(ctx, natsconn.Options{InProcess: s})
		if err != nil {
			return err
		}
		defer c.Close()
		l := c.Swarms.Log("s", 0, swarms.In)
		if err := l.Create(ctx); err != nil {
			return err
		}
		r, err := l.Read(ctx, 1)
		if err != nil {
			return err
		}
		defer r.Close()
		for range written {
			e, err := r.Next(ctx)
			if err != nil {
				return err
			}
			if string(e.Data) != secret {
				t.Errorf("read back: %q", e.Data)
			}
		}
		if err := l.Append(ctx, written, swarms.Entry{Kind: "k", Ref: written + 1, Data: []byte(secret)}); err != nil {
			return err
		}
		written++
		return nil
	}
	if err := use(); err != nil {
		t.Fatal(err)
	}
	if onDisk(t, dir, secret) == 0 {
		t.Fatal("the text is not on the disk without a key: this test proves nothing")
	}
	for name, lines := range map[string][]string{"a first key": {one}, "again": {one}} {
		if err := use(lines...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := onDisk(t, dir, secret); n != 0 {
			t.Errorf("%s: %d files hold the text", name, n)
		}
	}
	if err := use(two, one); err != nil {
		t.Fatalf("rotated: %v", err)
	}
	if err := use(two); err != nil {
		t.Fatalf("without the former key: %v", err)
	}
	if n := onDisk(t, dir, secret) + onDisk(t, dir, one) + onDisk(t, dir, two); n != 0 {
		t.Errorf("%d files hold the text or a key", n)
	}
	before := written
	if err := use(one); err == nil {
		t.Error("the former key alone serves what it cannot read")
	} else if !strings.Contains(err.Error(), "another key") {
		t.Errorf("the wrong key: %v", err)
	}
	if err := use(); err == nil || !strings.Contains(err.Error(), "--key-file") {
		t.Errorf("encrypted streams without a key: %v", err)
	}
	if written != before {
		t.Error("written with the wrong key")
	}
	if err := use(two); err != nil {
		t.Errorf("the right key, after a start with the wrong one: %v", err)
	}
	if _, err := server.Start(t.Context(), server.Options{
		Dir: t.TempDir(), Port: server.InProcess,
		Keys: ring(t, one, two, one),
	}); err == nil {
		t.Error("two former keys are taken")
	}
}

func ring(t *testing.T, lines ...string) *keyring.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := keyring.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
