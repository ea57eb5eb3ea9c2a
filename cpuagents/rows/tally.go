package rows

import (
	"errors"
	"fmt"
	"strings"
)

// Tally counts the rows of a source, and the rejected ones by their reasons. The zero value is
// empty.
type Tally struct {
	Rows, Rejected uint64 // Rows includes the rejected ones
	reasons        map[string]*Reason
}

// Reason is why rows of a source were rejected.
type Reason struct {
	// Reason and Cure are taken from the first row, without their differences between rows.
	Reason string `json:"reason"`
	Cure   string `json:"cure,omitempty"`
	Rows   uint64 `json:"rows"`
}

// maxReasons bounds the reasons that are told apart. Further ones are in none.
const maxReasons = 64

// Reject counts a rejected row.
func (t *Tally) Reject(r *Reject) {
	t.Rows++
	t.Rejected++
	kind := kindOfReason(r.Reason) + "\x00" + r.Cure
	of := t.reasons[kind]
	if of == nil {
		if len(t.reasons) == maxReasons {
			return
		}
		if t.reasons == nil {
			t.reasons = map[string]*Reason{}
		}
		of = &Reason{Reason: r.Reason, Cure: r.Cure}
		t.reasons[kind] = of
	}
	of.Rows++
}

// Most returns the most frequent reason; of several, the first in the order of their texts.
func (t *Tally) Most() (most Reason) {
	for _, r := range t.reasons {
		if r.Rows > most.Rows || r.Rows == most.Rows && r.Reason < most.Reason {
			most = *r
		}
	}
	return most
}

// Above reports whether more than a share of the rows was rejected.
func (t *Tally) Above(share float64) bool {
	return t.Rejected > 0 && float64(t.Rejected) > share*float64(t.Rows)
}

// MaxRejects is the share of the rows of a source that may be rejected where nothing else is said.
const MaxRejects = 0.1

// TooManyRejects returns an error if more than a share of the rows of a source was rejected. It
// names the most frequent reason.
func TooManyRejects(source string, t *Tally, share float64, most Reason) error {
	if !t.Above(share) {
		return nil
	}
	text := fmt.Sprintf("%s: %d of %d rows are rejected, more than the share of %v that --max-rejects allows", source,
		t.Rejected, t.Rows, share)
	if most.Rows > 0 {
		text += fmt.Sprintf("; the most frequent reason, of %d rows, is: %s", most.Rows, most.Reason)
		if most.Cure != "" {
			text += ": " + most.Cure
		}
	}
	return errors.New(text + "; all output is written")
}

// kindOfReason returns a reason without the values of its row, which are in quotes or numbers.
func kindOfReason(reason string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(reason); i++ {
		switch c := reason[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			// The name of a column tells reasons apart.
			if end := strings.IndexByte(reason[i+1:], '"'); quoted && end >= 0 &&
				strings.HasSuffix(b.String(), "column ") {
				b.WriteString(reason[i+1 : i+1+end])
				i, quoted = i+1+end, false
			}
		case !quoted && (c < '0' || c > '9'):
			b.WriteByte(c)
		}
	}
	return b.String()
}
