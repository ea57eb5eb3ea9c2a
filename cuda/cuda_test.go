package cuda

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

func TestOpenNames(t *testing.T) {
	for _, name := range []string{"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "host "} {
		if _, err := Open(t.Context(), name, Options{}); !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
	d, err := Open(t.Context(), "host", Options{MemoryLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if p := d.Properties(); p.Name != "host" || p.Requested != "host" {
		t.Errorf("%+v", p)
	}
	if _, total, err := d.Memory(); err != nil || total != 1<<20 {
		t.Errorf("total %d, %v", total, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, "host", Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A binary without CUDA names the cure when it is asked for a GPU, and auto says what it chose.
func TestWithoutCUDA(t *testing.T) {
	if Built {
		t.Skip("built with CUDA")
	}
	if _, err := Open(t.Context(), "cuda:0", Options{}); !errors.Is(err, device.ErrNotSupported) ||
		!strings.Contains(err.Error(), "-tags cuda") {
		t.Error(err)
	}
	var log bytes.Buffer
	d, err := Open(t.Context(), "auto", Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if p := d.Properties(); p.Name != "host" || p.Requested != "auto" || !strings.Contains(p.Reason, "-tags cuda") {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(log.String(), "device=host") {
		t.Error(log.String())
	}
}
