package device

import (
	"context"
	"log/slog"
)

// MemoryEvent logs, at debug level, that a buffer was allocated or freed. Devices call it for each,
// so that the events of a process pair up, except for open buffers.
func MemoryEvent(log *slog.Logger, event, name, purpose string, bytes int64) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		log.LogAttrs(context.Background(), slog.LevelDebug, "device memory", slog.String("event", event),
			slog.String("device", name), slog.Int64("bytes", bytes), slog.String("purpose", purpose))
	}
}
