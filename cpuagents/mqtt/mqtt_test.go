package mqtt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func options(address string) Options {
	return Options{
		Address: address, Dial: (&net.Dialer{}).DialContext, ClientID: "c", Filter: "a/#", SessionExpiry: 3600,
		MaxPayload: 1000,
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestClient: messages come in order, messages that were not acknowledged come again with the next
// connection, and a message that is too long comes without its payload.
func TestClient(t *testing.T) {
	b := servertest.StartMQTT(t)
	p := b.Publisher(t)
	ctx := within(t)
	o := options(b.Address)
	o.CleanStart = true
	c, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if c.Present {
		t.Error("a session that begins was there before")
	}
	for _, payload := range []string{"one", "two", strings.Repeat("x", 1001), "", strings.Repeat("x", 1_000_000)} {
		if err := p.Publish("a/b", []byte(payload), false); err != nil {
			t.Fatal(err)
		}
	}
	o.CleanStart = false
	first := true
	for _, want := range []struct {
		payload string
		size    int
		ack     bool
	}{{"one", 3, true}, {"two", 3, false}, {"", 1001, false}, {"", 0, false}, {"", 1_000_000, false}} {
		m, err := c.Next(ctx)
		if err != nil || m.Topic != "a/b" || string(m.Payload) != want.payload || m.Size != want.size ||
			(m.Payload == nil) != (want.size > 1000) || m.ID == 0 || m.Again || m.Retained {
			t.Fatalf("message %+v, %v, want %+v", m, err, want)
		}
		if want.ack {
			if err := c.Ack(m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Close()
	if _, err := c.Next(ctx); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
	if c, err = Open(ctx, o); err != nil || !c.Present {
		t.Fatalf("the session continues: %v, %v", c, err)
	}
	for range 4 {
		m, err := c.Next(ctx)
		if err != nil || !m.Again || first && string(m.Payload) != "two" {
			t.Fatalf("message %+v, %v, want two again", m, err)
		}
		first = false
	}
	// Another client takes the session over.
	other, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.Next(ctx); err == nil {
		t.Errorf("the first client gets %+v", m)
	}
	c.Close()
	other.Close()
}

// TestRefused: a refusal is told from what may pass.
func TestRefused(t *testing.T) {
	b := servertest.StartClosedMQTT(t)
	o := options(b.Address)
	o.User, o.Password = servertest.User, []byte("wrong")
	var refused *RefusedError
	if _, err := Open(within(t), o); !errors.As(err, &refused) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
	o.Password = []byte(servertest.Password)
	c, err := Open(within(t), o)
	if err != nil {
		t.Fatalf("the right password: %v", err)
	}
	c.Close()
	b.End(t)
	if _, err := Open(within(t), o); err == nil || errors.As(err, &refused) {
		t.Errorf("no broker: %v", err)
	}
}

// TestServers: servers that are no brokers, or bad ones, end in an error and never in a wait.
func TestServers(t *testing.T) {
	ack := []byte{0x20, 3, 0, 0, 0}
	sub := []byte{0x90, 4, 0, 1, 0, 1}
	for name, c := range map[string]struct {
		answer []byte
		want   string
	}{
		"nothing":         {nil, "not answer as a broker"},
		"HTTP":            {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "not answer as a broker"},
		"busy":            {[]byte{0x20, 3, 0, 0x89, 0}, "cannot take the client now"},
		"no length":       {[]byte{0x20, 0xff, 0xff, 0xff, 0xff, 0xff}, "has no length"},
		"huge":            {[]byte{0x20, 0xff, 0xff, 0xff, 0x7f}, "more than"},
		"no filter":       {append(bytes.Clone(ack), 0x90, 4, 0, 1, 0, 0x8f), "the filter is not valid"},
		"taken over":      {append(append(bytes.Clone(ack), sub...), 0xe0, 1, 0x8e), "another client has taken over"},
		"ended":           {append(append(bytes.Clone(ack), sub...), 0xe0, 1, 0x8b), "0x8b"},
		"short message":   {append(append(bytes.Clone(ack), sub...), 0x32, 2, 0, 9), "too short"},
		"no id":           {append(append(bytes.Clone(ack), sub...), 0x32, 6, 0, 1, 'a', 0, 0, 0), "has no identifier"},
		"unknown packets": {append(append(bytes.Clone(ack), sub...), 0xd0, 0, 0xf0, 1, 1), "EOF"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(c.answer)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
		client, err := Open(within(t), options(l.Addr().String()))
		if err == nil {
			_, err = client.Next(within(t))
			client.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		_ = l.Close()
		<-done
	}
}

// TestSilent: a server that never answers ends with the context.
func TestSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	if _, err := Open(ctx, options(l.Addr().String())); !errors.Is(err, stop) {
		t.Errorf("a silent server: %v, want %v", err, stop)
	}
}

// FuzzPacket: no packet ends the process, and what is decoded fits the packet.
func FuzzPacket(f *testing.F) {
	f.Add([]byte("\x32\x07\x00\x01a\x00\x05\x00x"))
	f.Add([]byte("\x3b\x0a\x00\x01a\x00\x05\x03\x01\x02\x03x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readPacket(bufio.NewReader(bytes.NewReader(data)), 64)
		if err != nil {
			return
		}
		m, err := parsePublish(p, 32)
		if err == nil && (m.Size < 0 || m.Size > p.size || len(m.Payload) > 32 ||
			m.Payload != nil && len(m.Payload) != m.Size) {
			t.Errorf("%x gives %+v", data, m)
		}
	})
}
