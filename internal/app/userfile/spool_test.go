package userfile

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
)

// TestSpoolInterrupted: of a stream that an interrupt ends, the record that its writer has begun is
// left out.
func TestSpoolInterrupted(t *testing.T) {
	long := "h,n\n" + strings.Repeat("1,\"a\nb\"\n", 20_000)
	for text, want := range map[string]string{
		"h\n1\n2": "h\n1\n", "h\n1\n": "h\n1\n", "h": "",
		`{"a":1}` + "\n" + `{"a":`: `{"a":1}` + "\n",
		long + "2,\"a\n":           long,
	} {
		r, w := io.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			_, _ = io.WriteString(w, text)
			_, _ = w.Write(nil) // returns when all before is read
			_, _ = w.Write(nil)
			interrupt()
		}()
		s, err := Spool(ctx, []string{"-"}, r)
		if err != nil || !s.Interrupted {
			t.Fatalf("Spool: %v, interrupted %v", err, s.Interrupted)
		}
		if got, err := os.ReadFile(s.Paths[0]); err != nil || string(got) != want {
			t.Errorf("%.20q: %d bytes, %v, want %d", text, len(got), err, len(want))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
