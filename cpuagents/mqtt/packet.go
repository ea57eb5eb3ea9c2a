package mqtt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The types of packets that the client sends or gets.
const (
	packetConnect    = 1
	packetConnack    = 2
	packetPublish    = 3
	packetPuback     = 4
	packetSubscribe  = 8
	packetSuback     = 9
	packetPing       = 12
	packetPong       = 13
	packetDisconnect = 14
)

// The properties of CONNECT that the client sends.
const (
	propertySessionExpiry  = 0x11
	propertyReceiveMaximum = 0x21
	propertyMaximumPacket  = 0x27
)

// refusedFrom is the first reason code of a failure.
const refusedFrom = 0x80

var errShort = errors.New("a packet of the broker is too short")

// Message is a message that the broker has sent.
type Message struct {
	Topic string
	// Payload belongs to the receiver. It is nil for a message of more than Options.MaxPayload
	// bytes.
	Payload []byte
	// Size is the length of the payload in bytes, also where Payload is nil.
	Size int
	// ID is the packet identifier of a message that needs Client.Ack; 0 for a message of QoS 0.
	ID uint16
	// Again reports that the broker may have sent the message before.
	Again bool
	// Retained reports that the message was stored before the subscription.
	Retained bool
}

func appendVarint(b []byte, n int) []byte {
	for ; n > 0x7f; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func packet(kind, flags byte, body []byte) []byte {
	return append(appendVarint([]byte{kind<<4 | flags}, len(body)), body...)
}

func connectPacket(o Options) []byte {
	flags := byte(0)
	if o.CleanStart {
		flags |= 0x02
	}
	if o.User != "" {
		flags |= 0x80
	}
	if o.Password != nil {
		flags |= 0x40
	}
	b := appendString(nil, "MQTT")
	b = append(b, 5, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(keepAlive.Seconds()))
	properties := binary.BigEndian.AppendUint32([]byte{propertySessionExpiry}, o.SessionExpiry)
	properties = binary.BigEndian.AppendUint16(append(properties, propertyReceiveMaximum), Unacked)
	properties = binary.BigEndian.AppendUint32(append(properties, propertyMaximumPacket), maxPacket)
	b = append(appendVarint(b, len(properties)), properties...)
	b = appendString(b, o.ClientID)
	if o.User != "" {
		b = appendString(b, o.User)
	}
	if o.Password != nil {
		b = appendString(b, o.Password)
	}
	return packet(packetConnect, 0, b)
}

// subscribePacket returns SUBSCRIBE with the identifier 1. The broker sends no retained messages.
func subscribePacket(filter string) []byte {
	const qos1, noRetained = 1, 2 << 4
	b := appendString([]byte{0, 1, 0}, filter)
	return packet(packetSubscribe, 2, append(b, qos1|noRetained))
}

func pubackPacket(id uint16) []byte {
	return packet(packetPuback, 0, binary.BigEndian.AppendUint16(nil, id))
}

type received struct {
	kind, flags byte
	body        []byte
	size        int // of the body; a part may have been skipped
}

// readPacket reads a packet. It skips a packet of more than most bytes, and keeps the first
// headBytes, which name it.
func readPacket(r *bufio.Reader, most int) (p received, err error) {
	first, err := r.ReadByte()
	if err != nil {
		return p, err
	}
	p.kind, p.flags = first>>4, first&0xf
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return p, err
		}
		if p.size |= int(b&0x7f) << shift; b < 0x80 {
			break
		}
		if shift == 21 {
			return p, errors.New("a packet of the broker has no length")
		}
	}
	if p.size > maxPacket {
		return p, fmt.Errorf("a packet of the broker has %d bytes: more than %d, which it was told", p.size, maxPacket)
	}
	keep := p.size
	if p.size > most {
		keep = min(keep, headBytes)
	}
	p.body = make([]byte, keep)
	if _, err := io.ReadFull(r, p.body); err != nil {
		return p, err
	}
	_, err = io.CopyN(io.Discard, r, int64(p.size-keep))
	return p, err
}

// field takes the next bytes of a packet that has their length before them.
func field(b []byte) (value, rest []byte, err error) {
	if len(b) < 2 {
		return nil, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return nil, nil, errShort
	}
	return b[:n], b[n:], nil
}

func properties(b []byte) (rest []byte, size int, err error) {
	n, shift := 0, 0
	for i, c := range b {
		if n |= int(c&0x7f) << shift; c < 0x80 {
			if len(b)-i-1 < n {
				return nil, 0, errShort
			}
			return b[i+1+n:], i + 1 + n, nil
		}
		if shift += 7; shift > 21 {
			break
		}
	}
	return nil, 0, errShort
}

// parsePublish decodes PUBLISH. Of a packet that was skipped only the payload is missing.
func parsePublish(p received, maxPayload int) (m Message, err error) {
	m.Again, m.Retained = p.flags&0x8 != 0, p.flags&0x1 != 0
	topic, b, err := field(p.body)
	if err != nil {
		return m, err
	}
	m.Topic = string(topic)
	head := 2 + len(topic)
	if qos := p.flags >> 1 & 0x3; qos > 0 {
		if len(b) < 2 || qos > 1 {
			return m, errShort
		}
		if m.ID = binary.BigEndian.Uint16(b); m.ID == 0 {
			return m, errors.New("a message of the broker has no identifier")
		}
		b, head = b[2:], head+2
	}
	b, n, err := properties(b)
	if skipped := len(p.body) < p.size; skipped || err != nil {
		if m.Size = p.size - head - n; skipped {
			err = nil // the properties may be longer than what was kept
		}
		return m, err
	}
	if m.Size = len(b); m.Size <= maxPayload {
		m.Payload = b
	}
	return m, nil
}
