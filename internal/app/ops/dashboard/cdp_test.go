package dashboard

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// browser is a headless Chromium that a test drives over a pipe (Chrome DevTools Protocol).
type browser struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File
	mu   sync.Mutex
	last int
	wait map[int]chan message
	// events are the events that came so far, by method; changed is closed with the next one.
	events  map[string][]json.RawMessage
	changed chan struct{}
	tab     string
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Tab    string          `json:"sessionId,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// openBrowser starts a browser with one empty tab. It skips the test with -short, and where there
// is no browser, unless EXOSWARM_BROWSER=required.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser: not with -short")
	}
	var bin string
	for _, name := range []string{
		"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
		"chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			bin = path
			break
		}
	}
	if bin == "" {
		if os.Getenv("EXOSWARM_BROWSER") == "required" {
			t.Fatal("no Chromium: install the package chromium")
		}
		t.Skip("no Chromium: install the package chromium to test the pages in a browser")
	}
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{
		t: t, in: in, wait: map[int]chan message{}, events: map[string][]json.RawMessage{},
		changed: make(chan struct{}),
	}
	b.cmd = exec.Command(bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
		"--force-device-scale-factor=1", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"),
		"--remote-debugging-pipe", "about:blank")
	b.cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // descriptors 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toBrowser.Close(), fromBrowser.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(out)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // its own group
		_ = b.cmd.Wait()
		_ = out.Close()
		<-read
	})
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	for len(targets.TargetInfos) == 0 || b.tab == "" {
		b.call("Target.getTargets", nil, &targets)
		for _, target := range targets.TargetInfos {
			if target.Type == "page" {
				var attached struct{ SessionID string }
				b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
				b.tab = attached.SessionID
			}
		}
	}
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// read delivers messages until the browser ends.
func (b *browser) read(out *os.File) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			for _, c := range b.wait {
				close(c)
			}
			b.wait = nil
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimRight(text, "\x00"), &m) == nil {
			if c := b.wait[m.ID]; c != nil {
				c <- m
				delete(b.wait, m.ID)
			} else if m.Method != "" {
				b.events[m.Method] = append(b.events[m.Method], m.Params)
				close(b.changed)
				b.changed = make(chan struct{})
			}
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	c := make(chan message, 1)
	b.mu.Lock()
	if b.wait == nil {
		b.mu.Unlock()
		b.t.Fatal("the browser has ended")
	}
	b.last++
	id := b.last
	b.wait[id] = c
	b.mu.Unlock()
	raw, err := json.Marshal(params)
	if err != nil {
		b.t.Fatal(err)
	}
	if params == nil {
		raw = []byte("{}")
	}
	text, _ := json.Marshal(message{ID: id, Method: method, Params: raw, Tab: b.tab}) // texts
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	select {
	case m, ok := <-c:
		switch {
		case !ok:
			b.t.Fatalf("%s: the browser has ended", method)
		case m.Error != nil:
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		case result != nil:
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(2 * time.Minute):
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval runs JavaScript and decodes its value. A promise is awaited.
func (b *browser) eval(script string, into any) {
	b.t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{
		"expression": script, "returnByValue": true, "awaitPromise": true,
	}, &got)
	if e := got.ExceptionDetails; e != nil {
		b.t.Fatalf("script: %s %s", e.Text, e.Exception.Description)
	}
	if into != nil && len(got.Result.Value) > 0 {
		if err := json.Unmarshal(got.Result.Value, into); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *browser) until(what, condition string) {
	b.t.Helper()
	end := time.Now().Add(2 * time.Minute)
	testkit.Until(b.t, what, func() bool {
		b.t.Helper()
		var ok bool
		b.eval("Boolean("+condition+")", &ok)
		if ok {
			return true
		}
		if bad := b.seen("Runtime.exceptionThrown"); len(bad) > 0 {
			b.t.Fatalf("%s does not come; the script has failed: %v", what, bad)
		}
		if time.Now().After(end) {
			var body string
			b.eval("document.body.innerText.slice(0, 2000)", &body)
			b.t.Fatalf("%s does not come; the page says:\n%s\nlog: %v", what, body, b.seen("Log.entryAdded"))
		}
		return false
	})
}

// open loads an address and waits until it is loaded.
func (b *browser) open(url string) {
	b.t.Helper()
	b.eval("window.__before = true", nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until("the page "+url, `!window.__before && document.readyState === "complete"`)
}

func (b *browser) seen(method string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, e := range b.events[method] {
		all = append(all, string(e))
	}
	return all
}

func (b *browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.events)
}

// look sets the size of the window and the color scheme.
func (b *browser) look(width, height int, scheme string, phone bool) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone,
	}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme},
		map[string]any{"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

func (b *browser) picture() []byte {
	b.t.Helper()
	var got struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 75}, &got)
	data, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
