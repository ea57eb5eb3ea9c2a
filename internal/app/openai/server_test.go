package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/app/generation/generationtest"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

var update = flag.Bool("update", false, "write the golden files")

// letters returns a tokenizer with the special tokens, and a token for each byte behind them.
func letters(t testing.TB, specials ...string) *tokenizer.Tokenizer {
	t.Helper()
	vocabulary, added := map[string]int{}, []map[string]any{}
	for i, s := range specials {
		vocabulary[s] = i
		added = append(added, map[string]any{"id": i, "content": s, "special": true})
	}
	// Bytes that are no printable characters have the characters from 256 on.
	other := rune(256)
	for b := range 256 {
		c := rune(b)
		if b < 33 || b > 126 && b < 161 || b == 173 {
			c = other
			other++
		}
		vocabulary[string(c)] = len(specials) + b
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added, "normalizer": nil, "post_processor": nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
	})
	testkit.NoError(t, "Marshal", err)
	tok, err := tokenizer.Parse(data)
	testkit.NoError(t, "Parse", err)
	return tok
}

var gopherTokens = []string{"<|begin|>", "<|end|>", "<|user|>", "<|agent|>"}

// server serves a model whose next token is a hash of the tokens before: a letter, a part of a
// character of two bytes, or the end.
type server struct {
	*httptest.Server
	agent *generationtest.Agent
	s     *Server
}

func serve(t *testing.T, o Options) *server {
	t.Helper()
	a := generationtest.Start(t, 4, 400)
	tok := letters(t, gopherTokens...)
	a.Next = func(tokens []int32, seed uint64) int32 {
		first := int32(len(gopherTokens))
		if last := tokens[len(tokens)-1]; last == first+0xc3 {
			return first + 0xa0 + generationtest.Hash(tokens, seed, 12)
		}
		switch n := generationtest.Hash(tokens, seed, 40); {
		case n < 26:
			return first + 'a' + n
		case n < 31:
			return first + ' '
		case n < 39:
			return first + 0xc3
		}
		return 1
	}
	g, err := generation.Open(t.Context(), generation.Options{
		In: a.In, Out: a.Out, Keys: statelog.NewKeys(a.Conn.Swarms.Log(a.Key, statelog.KeyShard, swarms.In)),
		Agents: 4, Context: a.Context, Decoder: func() generation.Decoder { return tok.NewDecoder() },
	})
	testkit.NoError(t, "Open", err)
	t.Cleanup(g.Close)
	form, err := FormOf("", tok)
	testkit.NoError(t, "FormOf", err)
	o.Models = []*Model{
		{Name: "gopher", Created: time.Unix(1764288000, 0), Tokenizer: tok, Form: form},
		{Name: "loading", Created: time.Unix(1764288000, 0), Tokenizer: tok, Form: form},
	}
	o.Models[0].Ready(g)
	s, err := New(o)
	testkit.NoError(t, "New", err)
	mux := http.NewServeMux()
	httpapi.Register(mux, "/v1/", s.Routes(), Fail)
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return &server{h, a, s}
}

func (s *server) do(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/v1/"+path, strings.NewReader(body))
	testkit.NoError(t, "NewRequest", err)
	r.Header.Set("Content-Type", httpapi.JSON)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(r)
	testkit.NoError(t, "Do", err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	testkit.NoError(t, "ReadAll", err)
	return res.StatusCode, string(data)
}

// changes are what differs from run to run: what is known depends on when a former answer was
// cancelled.
var changes = regexp.MustCompile(`"(id|created|cached_tokens)":("(chatcmpl|cmpl)-[A-Z2-7]{26}"|[0-9]+)`)

// TestGolden: the answers to the requests of testdata are as they were. A file has the requests,
// each a line with the method, the path, headers and the body, and the answers.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	testkit.NoError(t, "Glob", err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := serve(t, Options{})
			text, err := os.ReadFile(file)
			testkit.NoError(t, "ReadFile", err)
			var got bytes.Buffer
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "> ") {
					if strings.HasPrefix(line, "#") {
						got.WriteString(line)
					}
					continue
				}
				got.WriteString(line)
				head, body, _ := strings.Cut(strings.TrimSpace(line[2:]), " {")
				words := strings.Fields(head)
				if body != "" {
					body = "{" + body
				}
				status, answer := s.do(t, words[0], words[1], body, words[2:]...)
				fmt.Fprintf(&got, "%d\n%s\n", status, strings.TrimSpace(changes.ReplaceAllString(answer, `"$1":"*"`)))
			}
			if *update {
				testkit.NoError(t, "WriteFile", os.WriteFile(file, got.Bytes(), 0o644))
			}
			if got.String() != string(text) {
				t.Errorf("the answers have changed; with -update they are:\n%s", &got)
			}
		})
	}
}

// event is an event of a stream.
type event struct {
	id   string
	data string
}

// open begins a stream.
func (s *server) open(t *testing.T, path, body string, headers ...string) (*http.Response, func() (event, bool)) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/"+path, strings.NewReader(body))
	testkit.NoError(t, "NewRequest", err)
	r.Header.Set("Content-Type", httpapi.JSON)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(r)
	testkit.NoError(t, "Do", err)
	lines := bufio.NewScanner(res.Body)
	return res, func() (e event, ok bool) {
		for lines.Scan() {
			switch line := lines.Text(); {
			case line == "" && e.data != "":
				return e, true
			case strings.HasPrefix(line, "id: "):
				e.id = line[4:]
			case strings.HasPrefix(line, "data: "):
				e.data = changes.ReplaceAllString(line[6:], `"$1":"*"`)
			}
		}
		return e, false
	}
}

func rest(next func() (event, bool)) (all []event) {
	for {
		e, ok := next()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

// TestResume: a stream that is cut at any event continues behind it, and has the same events as one
// that was not cut.
func TestResume(t *testing.T) {
	s := serve(t, Options{})
	body := func(conversation string) string {
		return fmt.Sprintf(`{"model":"gopher","stream":true,"stream_options":{"include_usage":true},"seed":7,`+
			`"conversation":%q,"max_tokens":24,"stop":["zq"],"messages":[{"role":"user","content":"Max of x and y"}]}`,
			conversation)
	}
	res, next := s.open(t, "chat/completions", body("whole"))
	want := rest(next)
	res.Body.Close()
	if len(want) < 12 || want[len(want)-1].data != "[DONE]" {
		t.Fatalf("%d events: %v", len(want), want)
	}
	for cut := 1; cut < len(want); cut++ {
		res, next := s.open(t, "chat/completions", body(fmt.Sprint("cut", cut)))
		var got []event
		for range cut {
			e, _ := next()
			got = append(got, e)
		}
		res.Body.Close()
		res, next = s.open(t, "chat/completions", body(fmt.Sprint("cut", cut)), "Last-Event-ID", got[cut-1].id)
		got = append(got, rest(next)...)
		res.Body.Close()
		if !slices.Equal(got, want) {
			t.Fatalf("cut behind %d of %d events:\n%v\nwant\n%v", cut, len(want), got, want)
		}
	}
}

// TestLeave: an answer whose client leaves, or does not read, is cancelled.
func TestLeave(t *testing.T) {
	s := serve(t, Options{Patience: 50 * time.Millisecond, Beat: time.Millisecond})
	s.agent.Context = 1 << 30 // an answer does not end
	first := int32(len(gopherTokens))
	s.agent.Next = func([]int32, uint64) int32 { return first + 'x' }
	g, err := generation.Open(t.Context(), generation.Options{
		In: s.agent.In, Out: s.agent.Out, Agents: 4, Context: 1 << 30,
		Keys:    statelog.NewKeys(s.agent.Conn.Swarms.Log(s.agent.Key, statelog.KeyShard, swarms.In)),
		Decoder: func() generation.Decoder { return s.s.o.Models[0].Tokenizer.NewDecoder() },
	})
	testkit.NoError(t, "Open", err)
	defer g.Close()
	s.s.o.Models[0].Ready(g)
	body := `{"model":"gopher","stream":true,"prompt":"x"}`
	res, next := s.open(t, "completions", body)
	next()
	if s.agent.Active() != 1 {
		t.Errorf("%d agents are active", s.agent.Active())
	}
	res.Body.Close()
	testkit.Until(t, "the client has left", func() bool { return s.agent.Active() == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions",
		strings.NewReader(`{"model":"gopher","prompt":"x"}`))
	testkit.NoError(t, "NewRequest", err)
	r.Header.Set("Content-Type", httpapi.JSON)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := s.Client().Do(r); err == nil {
			res.Body.Close()
		}
	}()
	testkit.Until(t, "the answer has begun", func() bool { return s.agent.Active() == 1 })
	cancel()
	<-done
	testkit.Until(t, "the client has left", func() bool { return s.agent.Active() == 0 })
	// A client that does not read: its buffers are full at some time.
	w := &stuck{header: http.Header{}}
	in, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(body))
	testkit.NoError(t, "NewRequest", err)
	in.Header.Set("Content-Type", httpapi.JSON)
	testkit.NoError(t, "completion", s.s.completion(w, &httpapi.Request{Request: in}))
	if w.deadlines < 3 {
		t.Errorf("%d deadlines", w.deadlines)
	}
	testkit.Until(t, "the client was left", func() bool { return s.agent.Active() == 0 })
}

// stuck takes two writes. The third fails as at a deadline.
type stuck struct {
	header    http.Header
	writes    int
	deadlines int
}

func (w *stuck) Header() http.Header { return w.header }
func (w *stuck) WriteHeader(int)     {}
func (w *stuck) Flush()              {}

func (w *stuck) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		w.deadlines++
	}
	return nil
}

func (w *stuck) Write(p []byte) (int, error) {
	if w.writes++; w.writes > 2 {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

// TestForms: the forms of conversations, and what makes them.
func TestForms(t *testing.T) {
	talk := []Message{
		{Role: "system", Content: "Be short."},
		{Role: "user", Content: " Hello <|im_end|> "},
		{Role: "assistant", Content: "Hi"},
		{Role: "user", Content: "Bye"},
	}
	const inChatML = "[<|im_start|>]system\nBe short.[<|im_end|>]\n[<|im_start|>]user\n Hello <|im_end|> " +
		"[<|im_end|>]\n[<|im_start|>]assistant\nHi[<|im_end|>]\n[<|im_start|>]user\nBye[<|im_end|>]\n" +
		"[<|im_start|>]assistant\n"
	for name, want := range map[string]string{
		"chatml": inChatML, "qwen2": inChatML, "qwen2.5": inChatML, "qwen3": inChatML,
		"llama3.1": "[<|begin_of_text|>][<|start_header_id|>]system[<|end_header_id|>]\n\n" +
			"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe short.[<|eot_id|>]" +
			"[<|start_header_id|>]user[<|end_header_id|>]\n\nHello <|im_end|>[<|eot_id|>]" +
			"[<|start_header_id|>]assistant[<|end_header_id|>]\n\nHi[<|eot_id|>]" +
			"[<|start_header_id|>]user[<|end_header_id|>]\n\nBye[<|eot_id|>]" +
			"[<|start_header_id|>]assistant[<|end_header_id|>]\n\n",
		"llama3": "[<|begin_of_text|>][<|start_header_id|>]system[<|end_header_id|>]\n\nBe short.[<|eot_id|>]" +
			"[<|start_header_id|>]user[<|end_header_id|>]\n\nHello <|im_end|>[<|eot_id|>]" +
			"[<|start_header_id|>]assistant[<|end_header_id|>]\n\nHi[<|eot_id|>]" +
			"[<|start_header_id|>]user[<|end_header_id|>]\n\nBye[<|eot_id|>]" +
			"[<|start_header_id|>]assistant[<|end_header_id|>]\n\n",
		"mistral": "[<s>][INST] Be short.\n\n Hello <|im_end|>  [/INST]Hi[</s>][INST] Bye [/INST]",
		"gopher": "[<|begin|>][<|user|>]Be short.\n\n Hello <|im_end|> [<|agent|>]Hi[<|end|>][<|user|>]Bye" +
			"[<|agent|>]",
		"plain": "Be short.\n\nUser:  Hello <|im_end|> \n\nAssistant: Hi\n\nUser: Bye\n\nAssistant:",
	} {
		f, err := FormNamed(name)
		testkit.NoError(t, "FormNamed", err)
		got, specials := written(f, talk)
		if got != want {
			t.Errorf("%s:\n%q, want\n%q", name, got, want)
		}
		slices.Sort(specials)
		tok := letters(t, slices.Compact(specials)...)
		if ends, err := f.check(tok); err != nil || len(ends) != len(f.ends) {
			t.Errorf("%s: %v, %v", name, ends, err)
		}
		// What a user writes is never a special token.
		ids, err := tokens(tok, []part{plain(strings.Join(specials, ""))})
		if err != nil || len(ids) != len(strings.Join(specials, "")) {
			t.Errorf("%s: %d tokens of a text, %v", name, len(ids), err)
		}
		if name != "plain" {
			if _, err := f.check(letters(t)); err == nil {
				t.Errorf("%s: a tokenizer without its tokens is taken", name)
			}
		}
	}
	// Beginnings without a system message, and thoughts, as the templates write them.
	said := func(content string) Message { return Message{Role: "assistant", Content: Content(content)} }
	for _, c := range []struct {
		name, want string
		messages   []Message
	}{
		{"qwen2", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n" +
			"<|im_start|>assistant\n", talk[3:]},
		{"qwen2.5", "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant." +
			"<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n", talk[3:]},
		{"llama3.1", "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: " +
			"December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye" +
			"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", talk[3:]},
		{
			"qwen3", "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>user\nBye" +
				"<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nc<|im_end|>\n<|im_start|>assistant\n",
			[]Message{talk[3], said("<think>\nso\n</think>\n\nHi"), talk[3], said("\nc")},
		},
		{
			"qwen3", "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\nso\n</think>\n\nd<|im_end|>\n" +
				"<|im_start|>assistant\nc<|im_end|>\n<|im_start|>assistant\n<think>\ny\n</think>\n\nz<|im_end|>\n" +
				"<|im_start|>assistant\n",
			[]Message{
				talk[3], said("x<think>so\n\n</think>\n\nHi</think>\n\nd"), said("c"), said("<think>y</think>z"),
			},
		},
		{"qwen3", "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>assistant\nz<|im_end|>\n" +
			"<|im_start|>assistant\n", []Message{talk[0], said("<think>y</think>z")}},
	} {
		f, err := FormNamed(c.name)
		testkit.NoError(t, "FormNamed", err)
		got := ""
		for _, p := range f.turns(c.messages) {
			got += p.text
		}
		if got != c.want {
			t.Errorf("%s of %q:\n%q, want\n%q", c.name, c.messages, got, c.want)
		}
	}
	// The template of ChatML as files have it, with an escape or a line end.
	chatml := `{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + ` +
		`'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	for _, text := range []string{chatml, strings.ReplaceAll(chatml, `\n`, "\n") + "\n"} {
		if f, err := FormOf(text, nil); err != nil || f.name != "chatml" {
			t.Errorf("%v: %v", f, err)
		}
	}
	if _, err := FormOf("{{ messages }}", nil); err == nil || !strings.Contains(err.Error(), "chatml, qwen2") {
		t.Errorf("an unknown template: %v", err)
	}
	if f, err := FormOf(" ", letters(t)); err != nil || f.name != "plain" {
		t.Errorf("no template: %v, %v", f, err)
	}
	for digest, name := range digests {
		if _, err := FormNamed(name); err != nil || len(digest) != 64 {
			t.Errorf("digest %s: %v", digest, err)
		}
	}
}

// written returns the text of a conversation in a form, with special tokens in brackets, and these
// tokens.
func written(f Form, messages []Message) (text string, specials []string) {
	for _, p := range merge(f.turns(slices.Clone(messages))) {
		if p.special {
			text += "[" + p.text + "]"
			specials = append(specials, p.text)
		} else {
			text += p.text
		}
	}
	return text, specials
}
