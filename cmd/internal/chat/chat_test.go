package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// event writes an event of a chat.
func event(w io.Writer, id int, text, finish string) {
	why := "null"
	if finish != "" {
		why = fmt.Sprintf("%q", finish)
	}
	fmt.Fprintf(w, `id: %d
data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}

`, id, text, why)
}

// ask runs a command with a server.
func ask(t *testing.T, c *cobra.Command, h http.HandlerFunc, in string, args ...string) (out, errs string, err error) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "token")
	testkit.NoError(t, "WriteFile", os.WriteFile(file, []byte("secret\n"), 0o600))
	var o, e bytes.Buffer
	c.SetArgs(append(args, "--api", s.URL+"/", "--token-file", file))
	c.SetIn(strings.NewReader(in))
	c.SetOut(&o)
	c.SetErr(&e)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// TestChat: a conversation is sent as a whole each time, and a stream that is lost is continued
// behind the last event.
func TestChat(t *testing.T) {
	var calls atomic.Int64
	out, errs, err := ask(t, Command(), func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var in struct {
			Model, Conversation string
			Stream              bool
			Seed, MaxTokens     int
			Messages            []struct{ Role, Content string }
		}
		if err := json.Unmarshal(data, &in); err != nil || r.Header.Get("Authorization") != "Bearer secret" ||
			r.URL.Path != "/v1/chat/completions" || in.Model != "gopher" || !in.Stream || in.Conversation != "mine" {
			t.Errorf("%s %s: %v", r.URL.Path, data, err)
		}
		after := r.Header.Get("Last-Event-ID")
		switch n := calls.Add(1); {
		case n == 1:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"model gopher is being loaded: try again"}}`)
		case n == 2 && after == "" && len(in.Messages) == 2:
			event(w, 4, "", "")
			event(w, 5, "He", "")
			event(w, 6, "ll", "")
		case n == 3 && after == "6":
			_, _ = io.WriteString(w, ": waits for tokens\n\n")
			event(w, 7, "o", "")
			event(w, 8, "", "length")
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		case n == 4 && after == "" && len(in.Messages) == 4 && in.Messages[2].Content == "Hello":
			event(w, 20, "Bye", "stop")
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		default:
			t.Errorf("request %d behind %q: %s", n, after, data)
		}
	}, "Hi\n\nGo\n", "gopher", "--conversation", "mine", "--system", "Be short", "--seed", "3")
	if err != nil || out != "Hello\nBye\n" || strings.Count(errs, "(cut: ") != 1 {
		t.Errorf("%q, %q, %v", out, errs, err)
	}
}

// TestRun: a text is continued. A refusal is an error of usage, and a server that stays away an
// error.
func TestRun(t *testing.T) {
	run := func(h http.HandlerFunc, in string, args ...string) (string, error) {
		out, _, err := ask(t, Run().Command(), h, in, append([]string{"gopher"}, args...)...)
		return out, err
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if !bytes.Contains(data, []byte(`"prompt":"func "`)) || !bytes.Contains(data, []byte(`"stop":["x","y"]`)) {
			t.Errorf("%s", data)
		}
		_, _ = io.WriteString(w, `id: 3
data: {"choices":[{"text":"main","finish_reason":"stop"}]}

data: [DONE]

`)
	}
	for _, args := range [][]string{{"--prompt", "func "}, nil} {
		args = append(args, "--stop", "x", "--stop", "y")
		if out, err := run(answer, "func ", args...); out != "main\n" || err != nil {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
	if _, err := run(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"model x is not served"}}`)
	}, "x"); err == nil || err.Error() != "model x is not served" {
		t.Errorf("refused: %v", err)
	}
	if _, err := run(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "event: error\ndata: {\"error\":{\"message\":\"no memory\"}}\n\n")
	}, "x"); err == nil || err.Error() != "no memory" {
		t.Errorf("an error in a stream: %v", err)
	}
	began := time.Now()
	if _, err := run(func(http.ResponseWriter, *http.Request) {}, "x", "--patience", "1ms"); err == nil ||
		!strings.Contains(err.Error(), "the connection to the server is lost") {
		t.Errorf("lost after %v: %v", time.Since(began), err)
	}
}
