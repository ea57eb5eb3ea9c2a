package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// serveGopher starts exoswarm serve --models gopher at an address, in a folder that has the model.
func serveGopher(t *testing.T, dir, listen string) *process {
	t.Helper()
	p, _ := startProcess(t, `a model is served.*model=(\S+)`, filepath.Join(binaries(t), "exoswarm"), "serve",
		"--data-dir", dir, "--nats-port", "0", "--listen", listen, "--device", "host", "--models", "gopher",
		"--model-agents", "4")
	testkit.Until(t, "the addresses of serve", func() bool {
		_, err := os.Stat(filepath.Join(dir, "addresses.json"))
		return err == nil
	})
	return p
}

// TestModels: serve --models answers commands and the stock client of OpenAI. A stream whose server
// is killed with kill -9 in mid-sentence continues at the next token, and is the text of a stream
// that was not killed.
func TestModels(t *testing.T) {
	t.Parallel()
	bin, dir := binaries(t), filepath.Join(t.TempDir(), command.ServeFolder)
	run := func(stdin string, args ...string) (string, error) {
		cmd := osexec.CommandContext(t.Context(), filepath.Join(bin, "exoswarm"), args...)
		cmd.Dir, cmd.Stdin = filepath.Dir(dir), strings.NewReader(stdin)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return out.String(), fmt.Errorf("exoswarm %v: %w\n%s", args, err, &errs)
		}
		return out.String(), nil
	}
	model, err := filepath.Abs("../../examples/model/gopher.gguf")
	testkit.NoError(t, "Abs", err)
	_, err = run("", "model", "load", "gopher", "--file", model)
	testkit.NoError(t, "model load", err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, "Listen", err)
	listen := free.Addr().String()
	testkit.NoError(t, "Close", free.Close())
	p := serveGopher(t, dir, listen)

	// The commands, without flags.
	text := []string{
		"model", "run", "gopher", "--prompt", "func main() {", "--conversation", "long", "--max-tokens", "600",
		"--stop", "never",
	}
	want, err := run("", text...)
	testkit.NoError(t, "model run", err)
	if len(want) < 500 {
		t.Errorf("model run makes %q", want)
	}
	talk, err := run("Max returns the larger of x or y.\nAnd Min?\n", "chat", "gopher", "--temperature", "0",
		"--max-tokens", "40")
	if err != nil || !strings.HasPrefix(talk, "func ") {
		t.Errorf("chat: %q, %v", talk, err)
	}
	token, err := os.ReadFile(filepath.Join(dir, command.ProgramToken))
	testkit.NoError(t, "ReadFile", err)
	stock(t, "http://"+listen+"/v1", strings.TrimSpace(string(token)))

	// The same text while the server is killed.
	type result struct {
		text string
		err  error
	}
	for range testkit.Of(10, 2) {
		seen, done := make(chan struct{}), make(chan result, 1)
		cmd := osexec.CommandContext(t.Context(), filepath.Join(bin, "exoswarm"), text...)
		cmd.Dir = filepath.Dir(dir)
		out, err := cmd.StdoutPipe()
		testkit.NoError(t, "StdoutPipe", err)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		testkit.NoError(t, "Start", cmd.Start())
		go func() {
			head := make([]byte, 100)
			_, err := io.ReadFull(out, head)
			close(seen)
			rest, also := io.ReadAll(out)
			if err == nil {
				err = also
			}
			if wait := cmd.Wait(); wait != nil {
				err = fmt.Errorf("%w\n%s", wait, &errs)
			}
			done <- result{string(head) + string(rest), err}
		}()
		<-seen
		p.end(t, syscall.SIGKILL)
		p = serveGopher(t, dir, listen)
		if got := <-done; got.err != nil || got.text != want {
			t.Errorf("killed: %q, %v, want %q", got.text, got.err, want)
		}
	}
	p.end(t, syscall.SIGTERM)
}

// stock asks a server with the client of OpenAI for Node.js or Python, if one is installed.
func stock(t *testing.T, base, key string) {
	t.Helper()
	t.Run("stock client", func(t *testing.T) {
		env := append(os.Environ(), "OPENAI_BASE_URL="+base, "OPENAI_API_KEY="+key)
		for _, c := range [][]string{{"node", "testdata/openai.cjs"}, {"python3", "testdata/openai_client.py"}} {
			cmd := osexec.CommandContext(t.Context(), c[0], c[1:]...)
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			if err != nil && bytes.Contains(out, []byte("the package openai is not installed")) ||
				cmd.ProcessState == nil {
				t.Logf("%v: %v %s", c, err, out)
				continue
			}
			var got struct {
				Models               []string
				Text, Streamed, Code string
				Events, Embeddings   int
				Tokens               int
			}
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("%v: %v\n%s", c, err, out)
			}
			if len(got.Models) != 1 || got.Models[0] != "gopher" || got.Text == "" || got.Text != got.Streamed ||
				got.Events < 10 || got.Embeddings != 2 || got.Tokens < 10 || got.Code != "model_not_found" {
				t.Errorf("%v: %+v", c, got)
			}
			return
		}
		t.Skip("the package openai is installed neither for Node.js nor for Python")
	})
	r, err := http.Get(base + "/models")
	testkit.NoError(t, "Get", err)
	defer r.Body.Close()
	if r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", r.Status)
	}
}
