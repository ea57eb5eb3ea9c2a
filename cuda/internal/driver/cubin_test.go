//go:build cuda

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func testCache(t *testing.T, dir string) *cubinCache {
	t.Helper()
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCacheRoundTrip(t *testing.T) {
	c := testCache(t, filepath.Join(t.TempDir(), "made", "here"))
	for _, content := range [][]byte{{}, {1}, bytes.Repeat([]byte("cubin"), 10_000)} {
		key := cubinKey("k", fmt.Sprint(len(content)))
		if _, err := c.Get(key); !errors.Is(err, errMissing) {
			t.Fatal(err)
		}
		if err := c.Put(key, content); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(key); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	var none *cubinCache
	if err := none.Put("k", nil); err != nil {
		t.Error(err)
	}
	if _, err := none.Get("k"); !errors.Is(err, errMissing) {
		t.Error(err)
	}
}

func TestCacheKeySeparatesParts(t *testing.T) {
	if cubinKey("ab", "c") == cubinKey("a", "bc") || cubinKey("a") == cubinKey("a", "") {
		t.Error("keys do not follow their parts")
	}
}

// TestCacheDamageIsFound: every cut and every flipped byte of an entry is found, and Put repairs
// it.
func TestCacheDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	c := testCache(t, dir)
	content := []byte("the code of a kernel")
	if err := c.Put("key", content); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "key"+entrySuffix)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := [][]byte{append(bytes.Clone(whole), 0)}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x40
		damaged = append(damaged, whole[:i], flipped)
	}
	for i, d := range damaged {
		if err := os.WriteFile(path, d, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get("key"); !errors.Is(err, errDamaged) {
			t.Fatalf("damage %d: %v", i, err)
		}
	}
	if err := c.Put("key", content); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get("key"); err != nil || !bytes.Equal(got, content) {
		t.Fatal(err)
	}
}

func TestCacheOldTemporaryFilesGo(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "a.1"+tempSuffix), filepath.Join(dir, "b.2"+tempSuffix)
	for _, f := range []string{old, fresh} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * tempAge)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	testCache(t, dir)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("a killed writer's file stays")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error("a live writer's file was removed")
	}
}

// TestCacheProcesses: processes that write and read the same keys, and are killed in the middle,
// never see a broken entry.
func TestCacheProcesses(t *testing.T) {
	if dir := os.Getenv("CUBIN_TEST_DIR"); dir != "" {
		c := testCache(t, dir)
		for i, end := 0, time.Now().Add(time.Minute); time.Now().Before(end); i++ { // killed long before
			key := fmt.Sprint(i % 5)
			if err := c.Put(key, payload(key)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir := t.TempDir()
	c := testCache(t, dir)
	deadline := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				cmd := exec.Command(os.Args[0], "-test.run=^TestCacheProcesses$")
				cmd.Env = append(os.Environ(), "CUBIN_TEST_DIR="+dir)
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				<-time.After(100 * time.Millisecond) // the kill is a fault in the middle of the writes
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed: that is its error
			}
		})
	}
	reads := 0
	for time.Now().Before(deadline) {
		for i := range 5 {
			key := fmt.Sprint(i)
			got, err := c.Get(key)
			if errors.Is(err, errMissing) {
				continue
			}
			if err != nil || !bytes.Equal(got, payload(key)) {
				t.Fatalf("%s: %d bytes, %v", key, len(got), err)
			}
			reads++
		}
	}
	wg.Wait()
	if reads == 0 {
		t.Error("nothing was read")
	}
}

func payload(key string) []byte { return bytes.Repeat([]byte(key), 100_000) }
