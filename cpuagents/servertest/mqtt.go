package servertest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Broker is a mosquitto process on a fixed port.
type Broker struct {
	// Address is HOST:PORT.
	Address string
	dir     string
	cmd     *exec.Cmd
	ended   chan struct{} // the process is over
}

// User and Password log in to a broker of StartClosedMQTT.
const (
	User     = "reader"
	Password = "right"
)

// StartMQTT starts a broker that everybody may use. The test is skipped where mosquitto is not
// installed, unless the variable EXOSWARM_MOSQUITTO is "required". The broker ends with the test.
func StartMQTT(t testing.TB) *Broker {
	t.Helper()
	return startMQTT(t, "allow_anonymous true\n")
}

// StartClosedMQTT is StartMQTT for a broker that knows one user.
func StartClosedMQTT(t testing.TB) *Broker {
	t.Helper()
	path, err := exec.LookPath("mosquitto_passwd")
	if err != nil {
		skipMQTT(t)
	}
	file := filepath.Join(t.TempDir(), "users")
	if out, err := exec.Command(path, "-b", "-c", file, User, Password).CombinedOutput(); err != nil {
		t.Fatalf("mosquitto_passwd: %v\n%s", err, out)
	}
	return startMQTT(t, "allow_anonymous false\npassword_file "+file+"\n")
}

func skipMQTT(t testing.TB) {
	t.Helper()
	if os.Getenv("EXOSWARM_MOSQUITTO") == "required" {
		t.Fatal("mosquitto is not installed: apt-get install mosquitto")
	}
	t.Skip("mosquitto is not installed: apt-get install mosquitto")
}

func startMQTT(t testing.TB, config string) *Broker {
	t.Helper()
	dir := t.TempDir()
	for range 20 {
		port := 10_000 + rand.IntN(20_000)
		b := &Broker{Address: fmt.Sprint("127.0.0.1:", port), dir: dir}
		text := fmt.Sprintf("listener %d 127.0.0.1\nuser root\npersistence true\npersistence_location %s/\n"+
			"max_queued_messages 0\nlog_type error\n%s", port, dir, config)
		if err := os.WriteFile(filepath.Join(dir, "m.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if b.run(t) {
			t.Cleanup(func() { b.End(t) })
			return b
		}
	}
	t.Fatal("mosquitto does not listen on any port")
	return nil
}

// Restart starts a broker that was ended. It has its sessions again.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	if !b.run(t) {
		t.Fatal("mosquitto does not listen")
	}
}

// run starts the process, and reports whether it listens. Otherwise it has ended, since another
// process has the port.
func (b *Broker) run(t testing.TB) bool {
	t.Helper()
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		skipMQTT(t)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "-c", filepath.Join(b.dir, "m.conf"))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-ended:
			t.Logf("mosquitto ends: %s", log.String())
			return false
		case <-time.After(20 * time.Millisecond):
		}
		if c, err := net.Dial("tcp", b.Address); err == nil {
			_ = c.Close()
			b.cmd, b.ended = cmd, ended
			return true
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	return false
}

// End ends the broker, which stores its sessions.
func (b *Broker) End(t testing.TB) {
	t.Helper()
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	<-b.ended
	b.cmd = nil
}

// Forget removes the sessions of a broker that was ended.
func (b *Broker) Forget(t testing.TB) {
	t.Helper()
	if err := os.Remove(filepath.Join(b.dir, "mosquitto.db")); err != nil {
		t.Fatal(err)
	}
}

// Publisher publishes to a broker with QoS 1. Its methods may be called concurrently.
type Publisher struct {
	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
	id   uint16
}

// Publisher connects to a broker that everybody may use.
func (b *Broker) Publisher(t testing.TB) *Publisher {
	t.Helper()
	conn, err := net.Dial("tcp", b.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &Publisher{conn: conn, r: bufio.NewReader(conn)}
	// CONNECT of MQTT 3.1.1 with a clean session and no keep-alive.
	body := append([]byte{0, 4}, "MQTT\x04\x02\x00\x00\x00\x09publisher"...)
	if err := p.ask(0x10, body, 0x20); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return p
}

func (p *Publisher) ask(head byte, body []byte, want byte) error {
	if err := p.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	packet := []byte{head}
	n := len(body)
	for ; n > 127; n >>= 7 {
		packet = append(packet, byte(n)|0x80)
	}
	if _, err := p.conn.Write(append(append(packet, byte(n)), body...)); err != nil {
		return err
	}
	got := make([]byte, 4) // CONNACK and PUBACK have 4 bytes
	if _, err := io.ReadFull(p.r, got); err != nil {
		return err
	}
	if got[0] != want {
		return fmt.Errorf("the broker answers %x", got)
	}
	return nil
}

// Publish publishes a message, and returns when the broker has it.
func (p *Publisher) Publish(topic string, payload []byte, retain bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id++; p.id == 0 {
		p.id++
	}
	body := append(binary.BigEndian.AppendUint16(nil, uint16(len(topic))), topic...)
	body = append(binary.BigEndian.AppendUint16(body, p.id), payload...)
	head := byte(0x32)
	if retain {
		head |= 1
	}
	return p.ask(head, body, 0x40)
}
