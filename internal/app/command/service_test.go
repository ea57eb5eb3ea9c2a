package command

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manager is the socket of a service manager, with the messages that it has received.
func manager(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatalf("listen on %s: %v", path, err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	got, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 4096); ; {
			n, err := l.Read(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return got
}

// next returns the next message that is not of the watchdog.
func next(t *testing.T, got <-chan string) string {
	t.Helper()
	for {
		select {
		case m := <-got:
			if m != "WATCHDOG=1" {
				return m
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("no message within 5 s")
		}
	}
}

// TestService: the manager hears of the states of a process in order, with reasons in one line and
// without secrets; a second Service of the process says nothing until the first is closed.
func TestService(t *testing.T) {
	got := manager(t)
	log := slog.New(slog.DiscardHandler)
	s := NewService(log)
	other := NewService(log)
	other.Ready(nil)
	other.Close()
	s.Waiting("no answer of nats://u:secret@h:1\nREADY=1")
	want := "STATUS=waiting: no answer of nats://h:1 READY=1\nEXTEND_TIMEOUT_USEC=30000000"
	if m := next(t, got); m != want {
		t.Errorf("the first message is %q, want %q", m, want)
	}
	s.Ready(nil)
	if m := next(t, got); m != "READY=1\nSTATUS=serving" {
		t.Errorf("after Ready: %q", m)
	}
	s.Stopping(errors.New("an operator asked for it"))
	if m := next(t, got); m != "STOPPING=1\nSTATUS=stopping: an operator asked for it" {
		t.Errorf("after Stopping: %q", m)
	}
	s.Close()
	s.Close()
	var none *Service
	none.Ready(nil)
	none.Close()
	later := NewService(log)
	defer later.Close()
	later.Stopping(nil)
	if m := next(t, got); m != "STOPPING=1\nSTATUS=stopping" {
		t.Errorf("of the Service after the first: %q", m)
	}
	failed(strings.Repeat("x", 10_000))
	if m := next(t, got); !strings.HasPrefix(m, "STATUS=failed: xxx") || len(m) > maxStatus+20 {
		t.Errorf("a long error: %d bytes, %.40q", len(m), m)
	}
}

// TestServiceWatchdog: the watchdog is fed while the process answers, and no longer when it hangs.
// Close ends all the same.
func TestServiceWatchdog(t *testing.T) {
	got := manager(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", "")
	s := NewService(slog.New(slog.DiscardHandler))
	defer s.Close()
	hang, release := make(chan struct{}), make(chan struct{})
	s.Ready(func() {
		select {
		case <-hang:
			<-release
		default:
		}
	})
	defer close(release)
	for n := 0; n < 3; {
		select {
		case m := <-got:
			if m == "WATCHDOG=1" {
				n++
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%d messages of the watchdog within 5 s", n)
		}
	}
	close(hang)
	// One call may have passed the check of hang before, and its message may be under way.
	for last := 0; ; last++ {
		select {
		case <-got:
		case <-time.After(400 * time.Millisecond): // twenty times the time between two messages
			return
		}
		if last > 20 {
			t.Fatal("the watchdog of a process that hangs is fed")
		}
	}
}
