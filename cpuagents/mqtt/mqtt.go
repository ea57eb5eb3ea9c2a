// Package mqtt reads the messages of a session that a broker of MQTT 5 keeps for a client.
//
// It has the packets that a reader with QoS 1 needs. The caller acknowledges each message, so the
// broker sends again what was not stored. The session outlasts connections.
package mqtt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// Unacked is the number of messages that the broker may send ahead of their acknowledgement.
	// Some brokers exceed it when a session continues, such as mosquitto 2.0.11.
	Unacked = 256
	// maxPacket bounds a packet of the broker in bytes. The broker leaves out longer messages.
	maxPacket = 16 << 20
	// headBytes are kept of a packet whose payload is too long: topic, identifier and properties.
	headBytes = 128 << 10
	// heldBytes bounds the payloads that wait for Next.
	heldBytes = 16 << 20
	// keepAlive is the longest time without a sign of life to the broker.
	keepAlive = 30 * time.Second
	// patience bounds the time of a connection, and of each write.
	patience = 10 * time.Second
)

// Options configure a Client.
type Options struct {
	// Address is HOST:PORT of the broker, and Dial makes the connection. Required.
	Address string
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// ClientID names the session, and Filter the topics. Required.
	ClientID, Filter string
	// User and Password log in; without a user neither is sent.
	User     string
	Password []byte
	// CleanStart drops the session of an earlier client.
	CleanStart bool
	// SessionExpiry is how long the broker keeps a session without a connection, in seconds.
	SessionExpiry uint32
	// MaxPayload bounds a message in bytes. Longer ones come without their payload.
	MaxPayload int
}

// RefusedError is an answer of a broker that does not change when the request is repeated.
type RefusedError struct {
	What   string // that was refused
	Reason byte
}

// Error implements error.
func (e *RefusedError) Error() string {
	why := map[byte]string{
		0x84: "it does not know MQTT 5", 0x85: "the client id is not valid", 0x86: "user or password is wrong",
		0x87: "not authorized: check user, password and rights", 0x8a: "the client is banned",
		0x8f: "the filter is not valid",
	}[e.Reason]
	if why == "" {
		why = "reason code"
	}
	return fmt.Sprintf("the broker refuses the %s: %s (0x%x)", e.What, why, e.Reason)
}

// busy are the reasons of a broker that may pass.
var busy = map[byte]bool{0x80: true, 0x83: true, 0x88: true, 0x89: true, 0x97: true, 0x9c: true, 0x9f: true}

func refused(what string, reason byte) error {
	if busy[reason] {
		return fmt.Errorf("the broker cannot take the %s now: reason code 0x%x", what, reason)
	}
	return &RefusedError{What: what, Reason: reason}
}

// Client is a connection to a broker with its session. One goroutine uses it and closes it. Two
// goroutines read and send pings; both end with Close.
type Client struct {
	// Present reports whether the broker has continued a session.
	Present bool

	o    Options
	conn net.Conn
	r    *bufio.Reader
	in   chan Message
	held *semaphore.Weighted

	ctx    context.Context //nolint:containedctx // the lifetime of the goroutines
	cancel context.CancelCauseFunc
	done   sync.WaitGroup
	write  sync.Mutex // of conn
}

// Open connects to a broker, continues the session or begins one, and subscribes. An error that is
// a RefusedError comes again with the same options.
func Open(ctx context.Context, o Options) (*Client, error) {
	dialing, stop := context.WithTimeout(ctx, patience)
	defer stop()
	conn, err := o.Dial(dialing, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	c := &Client{
		o: o, conn: conn, r: bufio.NewReaderSize(conn, 64<<10), in: make(chan Message, Unacked),
		held: semaphore.NewWeighted(heldBytes),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	// The end of ctx interrupts the reads and writes of the beginning.
	interrupted := context.AfterFunc(dialing, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	early, err := c.begin()
	if !interrupted() && err == nil {
		err = dialing.Err()
	}
	if err != nil {
		c.cancel(err)
		_ = conn.Close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	c.done.Go(func() { c.read(early) })
	c.done.Go(c.ping)
	return c, nil
}

// begin exchanges the first packets. It returns the messages that came before the answer to the
// subscription.
func (c *Client) begin() (early []received, err error) {
	if err := c.send(connectPacket(c.o)); err != nil {
		return nil, err
	}
	p, err := readPacket(c.r, c.mostPacket())
	if err != nil {
		return nil, fmt.Errorf("the server does not answer as a broker of MQTT: %w", err)
	}
	if p.kind != packetConnack || len(p.body) < 2 {
		return nil, errors.New("the server does not answer as a broker of MQTT")
	}
	if p.body[1] >= refusedFrom {
		return nil, refused("client", p.body[1])
	}
	c.Present = p.body[0]&1 != 0
	if c.Present { // it has the subscription
		return nil, nil
	}
	if err := c.send(subscribePacket(c.o.Filter)); err != nil {
		return nil, err
	}
	for {
		p, err := readPacket(c.r, c.mostPacket())
		switch {
		case err != nil:
			return nil, err
		case p.kind == packetPublish:
			early = append(early, p)
			if len(early) > Unacked {
				return nil, errors.New("the broker does not answer the subscription")
			}
		case p.kind == packetSuback && len(p.body) > 3:
			if reason := p.body[len(p.body)-1]; reason >= refusedFrom {
				return nil, refused("filter", reason)
			}
			return early, nil
		case p.kind == packetDisconnect:
			return nil, disconnected(p)
		}
	}
}

// mostPacket is the length of a packet beyond which its payload is skipped.
func (c *Client) mostPacket() int { return c.o.MaxPayload + headBytes }

func disconnected(p received) error {
	reason := byte(0)
	if len(p.body) > 0 {
		reason = p.body[0]
	}
	if reason == 0x8e {
		return errors.New("another client has taken over the session")
	}
	return fmt.Errorf("the broker has ended the connection with reason code 0x%x", reason)
}

// read passes messages on until the connection ends. It waits while too many are held, so that the
// broker waits too.
func (c *Client) read(early []received) {
	for _, p := range early {
		if err := c.pass(p); err != nil {
			c.cancel(err)
			return
		}
	}
	for {
		// The answer to a sign of life comes in time if nothing else does.
		if err := c.conn.SetReadDeadline(time.Now().Add(2 * keepAlive)); err != nil {
			c.cancel(err)
			return
		}
		p, err := readPacket(c.r, c.mostPacket())
		if err == nil {
			switch p.kind {
			case packetPublish:
				err = c.pass(p)
			case packetDisconnect:
				err = disconnected(p)
			}
		}
		if err != nil {
			c.cancel(err)
			return
		}
	}
}

func (c *Client) pass(p received) error {
	m, err := parsePublish(p, c.o.MaxPayload)
	if err != nil {
		return err
	}
	if err := c.held.Acquire(c.ctx, weight(m)); err != nil {
		return err
	}
	select {
	case c.in <- m:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

func weight(m Message) int64 { return min(int64(len(m.Payload))+1, heldBytes) }

func (c *Client) ping() {
	tick := time.NewTicker(keepAlive / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := c.send(packet(packetPing, 0, nil)); err != nil {
				c.cancel(err)
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Client) send(p []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.conn.Write(p)
	return err
}

// Next returns the next message. It returns the cause of ctx when ctx ends, and the error of the
// connection when that ends: the broker sends again what was not acknowledged then.
func (c *Client) Next(ctx context.Context) (Message, error) {
	select {
	case m := <-c.in:
		c.held.Release(weight(m))
		return m, nil
	default:
	}
	select {
	case m := <-c.in:
		c.held.Release(weight(m))
		return m, nil
	case <-c.ctx.Done():
		return Message{}, context.Cause(c.ctx)
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	}
}

// Ack acknowledges messages by their identifiers, in the order in which they came. Identifiers that
// are 0 are left out.
func (c *Client) Ack(ids ...uint16) error {
	var b []byte
	for _, id := range ids {
		if id != 0 {
			b = append(b, pubackPacket(id)...)
		}
	}
	if len(b) == 0 {
		return nil
	}
	return c.send(b)
}

// Close ends the connection. The session stays on the broker.
func (c *Client) Close() {
	alive := c.ctx.Err() == nil
	c.cancel(net.ErrClosed)
	if alive {
		_ = c.send(packet(packetDisconnect, 0, nil))
	}
	_ = c.conn.Close()
	c.done.Wait()
}
