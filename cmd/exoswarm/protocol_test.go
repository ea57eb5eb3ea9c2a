package main

import (
	"bytes"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestFirstJob does what docs/protocol.md says under "A first job".
func TestFirstJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nc, err := nats.Connect(served(t, dir))
	if err != nil {
		t.Fatalf("nats.Connect: %v", err)
	}
	defer nc.Close()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	_, section, _ := strings.Cut(string(doc), "## A first job")
	section, _, _ = strings.Cut(section, "\n## ")
	request := regexp.MustCompile(`^nats req (\S+) '(.*)'`)
	var last []byte
	for line := range strings.Lines(section) {
		line, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !isCommand {
			continue
		}
		if m := request.FindStringSubmatch(line); m != nil {
			r, err := nc.Request(m[1], []byte(m[2]), time.Minute+5*time.Second)
			if err != nil {
				t.Fatalf("request on %s: %v", m[1], err)
			}
			if bytes.Contains(r.Data, []byte(`"error"`)) {
				t.Fatalf("request on %s is answered with an error: %s", m[1], r.Data)
			}
			last = r.Data
			continue
		}
		cmd := osexec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("command %s of the document: %v: %s", line, err, out)
		}
	}
	var answer struct{ Result struct{ Status string } }
	decisions, err := os.ReadFile(filepath.Join(dir, "decisions.ndjson"))
	if json.Unmarshal(last, &answer) != nil || answer.Result.Status != "done" || err != nil ||
		bytes.Count(decisions, []byte("\n")) != 2 {
		t.Errorf("the last answer is %s, error %v, and the decisions %s; want a job that is done with two", last, err,
			decisions)
	}
	// A spec that is none is refused at once.
	r, err := nc.Request("exo.api.submit", []byte(`{"pool":"cpu","kind":"stream","spec":{}}`), time.Minute)
	if err != nil {
		t.Fatalf("nc.Request exo.api.submit: %v", err)
	}
	if !bytes.Contains(r.Data, []byte(`"field":"/spec"`)) {
		t.Errorf("an empty spec: %s", r.Data)
	}
}
