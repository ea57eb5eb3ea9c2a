package queue

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// TestShortSubject: a message on a subject with too few tokens is not a letter.
func TestShortSubject(t *testing.T) {
	if _, err := decodeLetter(&natsconn.Message{Subject: "exo.dead.cpu.k.default"}); err == nil {
		t.Error("a letter on a short subject")
	}
}

// FuzzHeaders: headers of dead letters may be anything.
func FuzzHeaders(f *testing.F) {
	f.Add("exo.dead.cpu.k.default.id", "io", "3")
	f.Add("exo.dead", "", "1e9")
	f.Add("exo.dead.......", "x", "\x00")
	f.Fuzz(func(t *testing.T, subject, code, attempts string) {
		d, err := decodeLetter(&natsconn.Message{
			Subject: subject,
			Header:  nats.Header{headerCode: {code}, headerAttempts: {attempts}},
		})
		if err == nil && strings.Count(subject, ".") != 5 || err == nil && string(d.Reason.Code) != code {
			t.Fatalf("%q: %+v", subject, d)
		}
	})
}
