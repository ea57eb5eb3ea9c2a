package access

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestIO: a failure that the user can repair has class jobs.CodeInput, others have jobs.CodeIO, and
// a class is kept.
func TestIO(t *testing.T) {
	ended := Interrupt(context.Canceled)
	if !Classified(ended) || !errors.Is(ended, context.Canceled) {
		t.Errorf("an interrupted wait has no class, or lost its cause: %v", ended)
	}
	if err := IOError("read", "a.csv", ended); !errors.Is(err, context.Canceled) || err.Error() != ended.Error() {
		t.Errorf("an interrupted wait became %v", err)
	}
	for _, c := range []struct {
		err  error
		code jobs.Code
		text string
	}{
		{fs.ErrNotExist, jobs.CodeInput, "open a.csv: there is no such file or folder"},
		{fs.ErrPermission, jobs.CodeInput, "open a.csv: permission denied"},
		{syscall.ENOSPC, jobs.CodeIO, "open a.csv: no space left on the disk"},
		{syscall.EDQUOT, jobs.CodeIO, "open a.csv: no space left on the disk"},
		{syscall.EIO, jobs.CodeIO, "open a.csv: input/output error"},
		{InputError("row %d", 7), jobs.CodeInput, "row 7"},
	} {
		var e *jobs.Error
		if err := IOError("open", "a.csv", c.err); !errors.As(err, &e) || e.Code != c.code ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("IO of %v: got %v, want class %s and %q", c.err, err, c.code, c.text)
		}
	}
}

// TestQuote: a text of a user is cut at 40 bytes, and nothing in it reaches a terminal as a control
// character.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b[2J\n":             `"a\x1b[2J\n"`,
		strings.Repeat("x", 40):  `"` + strings.Repeat("x", 40) + `"`,
		strings.Repeat("x", 41):  `"` + strings.Repeat("x", 40) + `..."`,
		"\xff":                   `"\xff"`,
		"größer":                 `"größer"`,
		strings.Repeat(`"`, 100): `"` + strings.Repeat(`\"`, 40) + `..."`,
	} {
		if got := Quote(text); got != want {
			t.Errorf("Quote(%q) is %s, want %s", text, got, want)
		}
	}
}
