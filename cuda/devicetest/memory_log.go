package devicetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// MemoryLog tests the log of a device: every allocation and every freeing has one line with its
// size and purpose, at debug level only. A second Close of a buffer is not logged. open makes a
// device that writes to log.
func MemoryLog(t *testing.T, open func(log *slog.Logger) device.Device) {
	// events returns the bytes and the number of the lines that use causes.
	events := func(level slog.Level, use func(d device.Device)) (alloc, free int64, lines int) {
		var text bytes.Buffer
		use(open(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: level}))))
		for line := range bytes.Lines(text.Bytes()) {
			var e struct {
				Msg, Level, Event, Purpose string
				Bytes                      int64
			}
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			if e.Msg != "device memory" {
				continue
			}
			lines++
			switch {
			case e.Level != "DEBUG" || e.Purpose != "a test":
				t.Errorf("%s", line)
			case e.Event == "alloc":
				alloc += e.Bytes
			case e.Event == "free":
				free += e.Bytes
			}
		}
		return alloc, free, lines
	}
	use := func(n int, leak bool) func(d device.Device) {
		return func(d device.Device) {
			for i := range n {
				b, err := d.Alloc(int64(1000+i), "a test")
				if err != nil {
					t.Fatal(err)
				}
				if leak && i == n-1 {
					continue
				}
				if err := errors.Join(b.Close(), b.Close()); err != nil {
					t.Error(err)
				}
			}
			if err := d.Close(); (err != nil) != leak {
				t.Errorf("close with a leak %v: %v", leak, err)
			}
		}
	}
	if alloc, free, lines := events(slog.LevelDebug, use(100, false)); alloc != 104_950 || free != alloc ||
		lines != 200 {
		t.Errorf("%d bytes allocated and %d freed in %d lines", alloc, free, lines)
	}
	if alloc, _, _ := events(slog.LevelDebug, use(3, true)); alloc != 3003 {
		t.Errorf("%d bytes allocated", alloc)
	}
	if _, _, lines := events(slog.LevelInfo, use(3, false)); lines != 0 {
		t.Errorf("%d lines at the level info", lines)
	}
}
