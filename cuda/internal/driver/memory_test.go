//go:build cuda

package driver

import (
	"bytes"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
)

// TestLargestBlock: the largest buffer that the card gives is written, copied and read back whole.
func TestLargestBlock(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	const piece = 64 << 20
	free, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	var b device.Buffer
	size := free / (2 * piece) * (2 * piece)
	for ; b == nil; size -= 2 * piece {
		if b, err = d.Alloc(size, "test"); err != nil && (!errors.Is(err, device.ErrOutOfMemory) || size < free/2) {
			t.Fatalf("%d bytes of %d: %v", size, free, err)
		}
	}
	defer b.Close()
	size = b.Size()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from, err := d.AllocHost(piece, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := d.AllocHost(piece, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	half := size / 2
	for at := int64(0); at < half; at += piece {
		devicetest.FillWords(from.Bytes(), uint64(at))
		if err := errors.Join(s.Upload(b, at, from, 0, piece), s.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Copy(b, half, b, 0, half); err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < size; at += piece {
		devicetest.FillWords(from.Bytes(), uint64(at%half))
		if err := errors.Join(s.Download(to, 0, b, at, piece), s.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(from.Bytes(), to.Bytes()) {
			t.Fatalf("the %d bytes from %d came back changed", piece, at)
		}
	}
	t.Logf("%.2f GiB of %.2f free", float64(size)/(1<<30), float64(free)/(1<<30))
}

// TestMemoryQuery: Memory and nvidia-smi see the same card: its size, and a buffer come and go.
// Other processes may use the card, so the two are compared within 256 MiB.
func TestMemoryQuery(t *testing.T) {
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		t.Skip("no nvidia-smi to compare with")
	}
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	const near, size = 256 << 20, 4 << 30
	ask := func() (free, total int64) {
		t.Helper()
		out, err := exec.Command("nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits",
			"-i", "0").Output()
		if err != nil {
			t.Fatalf("nvidia-smi: %v", err)
		}
		f := strings.Split(strings.TrimSpace(string(out)), ", ")
		for i, to := range []*int64{&free, &total} {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				t.Fatalf("nvidia-smi: %q: %v", out, err)
			}
			*to = n << 20
		}
		return free, total
	}
	compare := func(when string) (free int64) {
		t.Helper()
		free, total, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		seen, of := ask()
		t.Logf("%s: %d of %d MiB are free; nvidia-smi: %d of %d", when, free>>20, total>>20, seen>>20, of>>20)
		// nvidia-smi counts what the driver reserves for itself as a part of the card.
		if total > of || total < of-of/32 {
			t.Errorf("%s: the card has %d MiB, and %d by nvidia-smi", when, total>>20, of>>20)
		}
		if free > seen+near || free < seen-near {
			t.Errorf("%s: %d MiB are free, and %d by nvidia-smi", when, free>>20, seen>>20)
		}
		return free
	}
	before := compare("before a buffer")
	b, err := d.Alloc(size, "test")
	if err != nil {
		t.Fatal(err)
	}
	with := compare("with a buffer")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if took := before - with; took < size || took > size+near {
		t.Errorf("a buffer of %d MiB took %d MiB", size>>20, took>>20)
	}
}
