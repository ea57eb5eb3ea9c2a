package bulk

import (
	"bytes"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// FuzzHead sends any bytes to the parser of heads: what is accepted is within its limits, and is
// written as it was.
func FuzzHead(f *testing.F) {
	b, err := head{id: "000102030405060708090a0b0c0d0e0f", token: random(swarms.BulkToken, 1), bytes: 5, swarm: "s"}.
		encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:headSum], encodeEntry(7))
	f.Fuzz(func(t *testing.T, first, entry []byte) {
		b := make([]byte, headSize)
		copy(b, first)
		sum := swarms.BulkSum(b[:headSum]) // else almost nothing is accepted
		for i := range 4 {
			b[headSum+i] = byte(sum >> (8 * i))
		}
		copy(b[entryAt:], entry)
		h, err := decodeHead(b)
		if err != nil {
			return
		}
		if h.bytes < 1 || h.bytes > swarms.MaxBulk || len(h.swarm) > maxKey || len(h.token) != swarms.BulkToken {
			t.Fatalf("head %+v", h)
		}
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again[:headKey+len(h.swarm)], b[:headKey+len(h.swarm)]) {
			t.Fatalf("head %+v is written in another way", h)
		}
	})
}

// FuzzRequest sends any bytes to the parser of requests.
func FuzzRequest(f *testing.F) {
	token, nonce := random(swarms.BulkToken, 1), random(nonceSize, 2)
	f.Add(request{id: "000102030405060708090a0b0c0d0e0f", offset: 1, length: 2}.encode(nil, token, nonce, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(b)
		if err != nil {
			return
		}
		if r.offset < 0 || r.length < 1 || r.offset+r.length > swarms.MaxBulk {
			t.Fatalf("request %+v", r)
		}
		again := r.encode(nil, token, nonce, 3)
		if !bytes.Equal(again[:macAt], b[:macAt]) {
			t.Fatalf("request %+v is written in another way", r)
		}
		if r.signed(b, token, nonce, 3) != bytes.Equal(again, b) {
			t.Fatal("the HMAC is not what decides")
		}
	})
}

// FuzzAnswers sends any bytes to the parsers of a client.
func FuzzAnswers(f *testing.F) {
	f.Add(encodeAnswer(statusOK, 5))
	f.Add(append([]byte(greetMagic), make([]byte, nonceSize)...))
	f.Add(encodeAnswer(statusBusy, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if nonce, err := readGreeting(bytes.NewReader(b)); err == nil && len(nonce) != nonceSize {
			t.Fatalf("a nonce of %d bytes", len(nonce))
		}
		if err := readAnswer(bytes.NewReader(b), 5); err == nil && !bytes.HasPrefix(b, encodeAnswer(statusOK, 5)) {
			t.Fatalf("%x is taken for an answer", b)
		}
	})
}
