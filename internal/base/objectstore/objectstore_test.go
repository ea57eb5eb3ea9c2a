package objectstore

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestOpen: a scheme without a driver is an error that says how to get it, and a scheme has one
// driver. No driver is imported by this test.
func TestOpen(t *testing.T) {
	for _, scheme := range []string{"s3", "gs"} {
		_, err := Open(t.Context(), scheme, Options{})
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "-tags connectors") {
			t.Errorf("Open(%s): got %v, want how to get it", scheme, err)
		}
	}
	gave := ""
	Register("test", func(_ context.Context, o Options) (Bucket, error) {
		gave = o.Bucket
		return nil, nil
	})
	if _, err := Open(t.Context(), "test", Options{Bucket: "b"}); err != nil || gave != "b" {
		t.Errorf("the driver got %q, %v", gave, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second driver replaces the first one")
		}
	}()
	Register("test", nil)
}

// TestTransient: only answers that a repetition may change are repeated.
func TestTransient(t *testing.T) {
	for status, want := range map[int]bool{
		0: true, 200: false, 403: false, 404: false, 408: true, 429: true,
		500: true,
	} {
		if got := Transient(status); got != want {
			t.Errorf("Transient(%d) is %v, want %v", status, got, want)
		}
	}
}
