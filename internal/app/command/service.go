package command

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// Service tells the service manager about the state of the process, by the protocol of systemd's
// units with Type=notify. Without a manager (no NOTIFY_SOCKET in the environment) its methods do
// nothing, and a nil Service does nothing either. One goroutine calls the methods, except Waiting.
type Service struct {
	log *slog.Logger
	// owner is false for a Service that was made while another one of the process was open.
	owner bool
	end   chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// served is true while a Service of the process is open.
var served atomic.Bool

// startExtension is the time that Waiting asks the manager for. It must exceed the time between two
// calls.
const startExtension = 30 * time.Second

// NewService returns the Service of the process. The first one owns the connection to the manager
// until Close: parts that exoswarm serve runs in its process must not report their own states.
func NewService(log *slog.Logger) *Service {
	return &Service{log: log, owner: served.CompareAndSwap(false, true), end: make(chan struct{})}
}

// Waiting shows a reason why the process is not ready yet, and asks for more time to start. A
// process that waits for something calls it at least every 30 s, or the manager ends it after
// TimeoutStartSec. Any goroutine may call it before Ready.
func (s *Service) Waiting(reason string) {
	s.send(fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", line("waiting: "+reason), startExtension.Microseconds()))
}

// Ready reports that the process serves, and starts the watchdog if the manager asks for one
// (WATCHDOG_USEC). From then on, alive is called twice in each period of the watchdog, in a
// goroutine of its own. If a call does not return, the manager hears nothing more and restarts the
// process, so alive must need the locks without which the process does nothing, and must not wait
// for a network, a disk or a device. A nil alive proves only that goroutines run.
func (s *Service) Ready(alive func()) {
	s.send("READY=1\nSTATUS=serving")
	if s == nil || !s.owner {
		return
	}
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("no watchdog", "error", err)
	}
	if period <= 0 {
		return
	}
	s.ended.Add(1)
	go func() {
		defer s.ended.Done()
		tick := time.NewTicker(period / 2)
		defer tick.Stop()
		for {
			// Close must not wait for a call of alive that does not return.
			done := make(chan struct{})
			go func() {
				defer close(done)
				if alive != nil {
					alive()
				}
			}()
			select {
			case <-done:
				s.send(daemon.SdNotifyWatchdog)
			case <-s.end:
				return
			}
			select {
			case <-tick.C:
			case <-s.end:
				return
			}
		}
	}()
}

// Stopping reports that the process ends, and why; nil: its work has ended. The watchdog continues
// until Close.
func (s *Service) Stopping(reason error) {
	text := "stopping"
	if reason != nil {
		text += ": " + reason.Error()
	}
	s.send(daemon.SdNotifyStopping + "\nSTATUS=" + line(text))
}

// Close ends the watchdog. A second call does nothing.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		close(s.end)
		s.ended.Wait()
		if s.owner {
			served.Store(false)
		}
	})
}

// send sends a message to the manager. A manager that cannot be reached is logged and ignored: the
// process serves all the same, and the manager decides by its timeouts.
func (s *Service) send(state string) {
	if s == nil || !s.owner {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("the service manager does not take a message", "error", err)
	}
}

// failed shows an error in the status of the unit, where it stays after the end of the process.
func failed(text string) { _, _ = daemon.SdNotify(false, "STATUS="+line("failed: "+text)) }

// maxStatus bounds a line of status, in bytes.
const maxStatus = 512

// line returns a text as one line without secrets.
func line(text string) string { return redact.Line(redact.Short(redact.Secrets(text), maxStatus)) }
