package bulk

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The protocol of a connection. The server sends a greeting: greetMagic and a random nonce. The
// client sends requests, one after the other, and gets the answer to each: a status, the length, and
// so many bytes of the payload. Numbers are little-endian.
//
//	request: id (16), offset (8), length (8), HMAC (32)
//	answer:  status (8), length (8), bytes
//
// The HMAC is SHA-256 under the token of the payload, over the nonce, the number of the request on
// the connection from 0, and the first 32 bytes of the request.
const (
	greetMagic  = "EXOLANE\x01"
	nonceSize   = 16
	greetSize   = len(greetMagic) + nonceSize
	macAt       = 32
	requestSize = macAt + sha256.Size
	answerSize  = 16
)

// status is the outcome of a request.
type status uint64

const (
	statusOK status = iota
	statusUnknown
	statusBusy // comes in the place of a greeting too
	statusDisk
)

// err returns the error of a status.
func (s status) err() error {
	switch s {
	case statusOK:
		return nil
	case statusUnknown:
		return ErrUnknown
	case statusBusy:
		return ErrBusy
	case statusDisk:
		return ErrDisk
	}
	return fmt.Errorf("status %d: %w", s, errProtocol)
}

// request asks for a part of a payload.
type request struct {
	id     string // in hexadecimal digits
	offset int64
	length int64
	mac    []byte
}

// encode appends the request number n on a connection with a nonce.
func (r request) encode(b []byte, token, nonce []byte, n uint64) []byte {
	at := len(b)
	b, _ = hex.AppendDecode(b, []byte(r.id)) // swarms.DecodeBulk has checked it
	b = binary.LittleEndian.AppendUint64(b, uint64(r.offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.length))
	return append(b, macOf(token, nonce, n, b[at:])...)
}

// macOf returns the HMAC of the first bytes of a request.
func macOf(token, nonce []byte, n uint64, fields []byte) []byte {
	h := hmac.New(sha256.New, token)
	h.Write(nonce)
	h.Write(binary.LittleEndian.AppendUint64(nil, n))
	h.Write(fields)
	return h.Sum(nil)
}

// decodeRequest reads a request. For any bytes it returns one whose range is within the largest
// payload, or errProtocol.
func decodeRequest(b []byte) (r request, err error) {
	if len(b) != requestSize {
		return r, fmt.Errorf("a request of %d bytes: %w", len(b), errProtocol)
	}
	offset, length := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if offset >= swarms.MaxBulk || length < 1 || length > swarms.MaxBulk-offset {
		return r, fmt.Errorf("a request of %d bytes at %d: %w", length, offset, errProtocol)
	}
	return request{hex.EncodeToString(b[:16]), int64(offset), int64(length), b[macAt:]}, nil
}

// signed reports whether a request, whose bytes are b, has the HMAC of a token.
func (r request) signed(b, token, nonce []byte, n uint64) bool {
	return hmac.Equal(r.mac, macOf(token, nonce, n, b[:macAt]))
}

// encodeAnswer returns the begin of an answer.
func encodeAnswer(s status, length int64) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, answerSize), uint64(s))
	return binary.LittleEndian.AppendUint64(b, uint64(length))
}

// readGreeting reads a greeting and returns its nonce.
func readGreeting(r io.Reader) ([]byte, error) {
	b := make([]byte, greetSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read the greeting: %w", err)
	}
	if string(b[:len(greetMagic)]) != greetMagic {
		if status(binary.LittleEndian.Uint64(b)) == statusBusy {
			return nil, ErrBusy
		}
		return nil, fmt.Errorf("read the greeting: %w", errProtocol)
	}
	return b[len(greetMagic):], nil
}

// readAnswer reads the begin of an answer to a request of a length.
func readAnswer(r io.Reader, length int64) error {
	var b [answerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if err := status(binary.LittleEndian.Uint64(b[:])).err(); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(b[8:]); n != uint64(length) {
		return fmt.Errorf("an answer of %d bytes to a request of %d: %w", n, length, errProtocol)
	}
	return nil
}
