package dashboard

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"
)

type running struct {
	s    *Server
	base string // "http://127.0.0.1:PORT/"
	http *http.Client
}

// serve runs a server until the test ends. Each edit changes it before it runs.
func serve(t *testing.T, o Options, edits ...func(*Server)) *running {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		edit(s)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	jar, _ := cookiejar.New(nil) // never fails
	transport := &http.Transport{}
	r := &running{s: s, base: "http://" + ln.Addr().String() + "/", http: &http.Client{
		Jar: jar, Transport: transport, CheckRedirect: func(*http.Request,
			[]*http.Request,
		) error {
			return http.ErrUseLastResponse
		},
	}}
	t.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("the server does not end")
		}
	})
	return r
}

type reply struct {
	status int
	header http.Header
}

func (r *running) do(t *testing.T, method, path, body string, headers ...string) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header}, string(text)
}

// get asks the API with the lasting token.
func (r *running) get(t *testing.T, path string) (reply, string) {
	t.Helper()
	return r.do(t, "GET", "api/v1/"+path, "", "Authorization", "Bearer "+testToken)
}

// logIn exchanges a token for the cookie.
func (r *running) logIn(t *testing.T, token string) reply {
	t.Helper()
	body, _ := json.Marshal(Token{Token: token}) // a text
	res, _ := r.do(t, "POST", "api/v1/login", string(body))
	return res
}

func (r *running) cookies() []*http.Cookie {
	u, _ := url.Parse(r.base)
	return r.http.Jar.Cookies(u)
}
