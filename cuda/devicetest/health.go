package devicetest

import (
	"context"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testHealth asks three devices for their health: a sound one, one whose memory differs from the
// claims of its owner, and a closed one. Health compares the claimed checksums on the device. It
// names each claim that is wrong and no other, and a claim outside its buffer is wrong. The sensors
// are logged and not judged: a chip may be warm.
func testHealth(t *testing.T, open launches.Opener) {
	ctx := context.Background()
	d := launches.Open(t, open)
	data := launches.RandomBytes(11, 100_003)
	b := launches.Upload(t, d, data)
	claims := []device.Claim{
		{Name: "page 1", Buffer: b, Bytes: int64(len(data)), Sum: Checksum(data)},
		{Name: "page 2", Buffer: b, Off: 1600, Bytes: 777, Sum: Checksum(data[1600:2377])},
		{Name: "page 3", Buffer: b, Off: 16, Bytes: 0, Sum: Checksum(nil)},
	}
	h := d.Health(ctx, claims...)
	t.Logf("%v %q, %d bytes in use, sensors %+v", h.State, h.Reasons, h.InUse, h.Sensors)
	for _, r := range h.Reasons { // a chip may be warm; its memory is right
		if h.State == device.Failed || strings.Contains(r, "page") {
			t.Errorf("a sound device: %s", r)
		}
	}
	if h.Claims != 3 || h.InUse < int64(len(data)) || (h.State == device.OK) != (len(h.Reasons) == 0) {
		t.Errorf("%+v", h)
	}
	launches.Write(t, b, 2000, []byte{data[2000] ^ 1})
	claims = append(claims, device.Claim{Name: "page 4", Buffer: b, Off: 1 << 20, Bytes: 1})
	h = d.Health(ctx, claims...)
	all := strings.Join(h.Reasons, "; ")
	if h.State != device.Failed || !strings.Contains(all, "page 1") || !strings.Contains(all, "page 2") ||
		strings.Contains(all, "page 3") || !strings.Contains(all, "page 4") {
		t.Errorf("changed memory: %v %s", h.State, all)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if h := d.Health(ended, claims...); h.State == device.OK ||
		strings.Contains(strings.Join(h.Reasons, ""), "other bytes") && h.Claims == len(claims) {
		t.Errorf("with a context that is over: %+v", h)
	}
	lost := open(t, 0)
	if err := lost.Close(); err != nil {
		t.Fatal(err)
	}
	if h := lost.Health(ctx); h.State != device.Failed || len(h.Reasons) == 0 {
		t.Errorf("a closed device: %+v", h)
	}
}
