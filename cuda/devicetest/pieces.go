package devicetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testPieces copies many pieces in one call, in both directions, with random sizes and places, and
// compares with a model. Even rounds have adjacent pieces, which a device may join; later rounds
// use two buffers. All pieces keep the order of the stream: they come after earlier work and before
// later work. A list with one wrong piece is refused as a whole.
func testPieces(t *testing.T, open launches.Opener) {
	const size, count = 1 << 20, 60
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	in, out := launches.AllocHost(t, d, size), launches.AllocHost(t, d, size)
	copy(in.Bytes(), launches.RandomBytes(3, size))
	one, two := launches.Alloc(t, d, size), launches.Alloc(t, d, size)
	r := rand.New(rand.NewPCG(9, 10))
	for round := range 10 {
		var pieces []device.Piece
		model := [2][]byte{bytes.Repeat([]byte{byte(round)}, size), bytes.Repeat([]byte{byte(round + 100)}, size)}
		host := bytes.Repeat([]byte{launches.Poison}, size)
		part := size / count
		order := r.Perm(count)
		if round%2 == 0 {
			for i := range order { // neighbours on both sides
				order[i] = i
			}
		}
		for i, place := range order {
			n := r.IntN(part + 1)
			if round%2 == 0 {
				n = part
			}
			b, m := one, 0
			if round > 4 && i%3 == 0 {
				b, m = two, 1
			}
			pieces = append(pieces, device.Piece{
				Buffer: b, Off: int64(place * part), Host: in,
				HostOff: int64(i * part), Bytes: int64(n),
			})
			copy(model[m][place*part:place*part+n], in.Bytes()[i*part:])
			copy(host[i*part:], in.Bytes()[i*part:i*part+n])
		}
		back := append([]device.Piece{}, pieces...)
		for i := range back {
			back[i].Host = out
		}
		for i := range out.Bytes() {
			out.Bytes()[i] = launches.Poison
		}
		err := errors.Join(s.Fill(one, 0, size, byte(round)), s.Fill(two, 0, size, byte(round+100)),
			s.UploadAll(pieces), s.DownloadAll(back))
		if err != nil {
			t.Fatal(err)
		}
		launches.Wait(t, s)
		for i, b := range []device.Buffer{one, two} {
			if !bytes.Equal(launches.Download(t, b), model[i]) {
				t.Fatalf("round %d: buffer %d differs from its model", round, i)
			}
		}
		if !bytes.Equal(out.Bytes(), host) {
			t.Fatalf("round %d: the host memory differs from its model", round)
		}
		// What comes behind the pieces is behind all of them.
		if err := errors.Join(s.UploadAll(pieces), s.Fill(one, 0, size, 0xEE), s.Fill(two, 0, size, 0xEE)); err != nil {
			t.Fatal(err)
		}
		launches.Wait(t, s)
		late := func(b device.Buffer) int { return size - bytes.Count(launches.Download(t, b), []byte{0xEE}) }
		if late(one)+late(two) > 0 {
			t.Fatalf("round %d: a piece came after what was put in behind it", round)
		}
	}
	g, err := s.Capture(func() error {
		return s.UploadAll([]device.Piece{
			{Buffer: one, Host: in, Bytes: 100},
			{Buffer: two, Off: 5, Host: in, HostOff: 7, Bytes: 100},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replay(g); err != nil {
		t.Error(err)
	}
	launches.Wait(t, s)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(launches.Download(t, one)[:100], in.Bytes()[:100]) ||
		!bytes.Equal(launches.Download(t, two)[5:105], in.Bytes()[7:107]) {
		t.Error("a captured upload of pieces has other bytes")
	}
	if err := errors.Join(s.UploadAll(nil), s.DownloadAll([]device.Piece{{Buffer: one, Host: out}})); err != nil {
		t.Errorf("nothing: %v", err)
	}
	good := device.Piece{Buffer: one, Host: in, Bytes: 8}
	if err := one.Fill(0, size, launches.Poison); err != nil {
		t.Fatal(err)
	}
	foreign := launches.Alloc(t, launches.Open(t, open), 8)
	for what, bad := range map[string]device.Piece{
		"no memory": {}, "no host memory": {Buffer: one, Bytes: 1},
		"past the end":   {Buffer: one, Off: size - 7, Host: in, Bytes: 8},
		"past the host":  {Buffer: one, Host: in, HostOff: size, Bytes: 1},
		"negative":       {Buffer: one, Host: in, Bytes: -1},
		"another device": {Buffer: foreign, Host: in, Bytes: 8},
	} {
		launches.Want(t, what, s.UploadAll([]device.Piece{good, bad}), device.ErrInvalidArgument)
		launches.Want(t, what, s.DownloadAll([]device.Piece{bad, good}), device.ErrInvalidArgument)
	}
	launches.Wait(t, s)
	if n := launches.CountOther(launches.Download(t, one)); n != 0 {
		t.Errorf("refused calls changed %d bytes", n)
	}
}
