package dashboard

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

type fakePrograms struct {
	served atomic.Int64
	err    error
}

func (f *fakePrograms) Routes() []httpapi.Route {
	routes := programTable()
	for i := range routes {
		routes[i].Serve = func(w http.ResponseWriter, _ *httpapi.Request) error {
			f.served.Add(1)
			if f.err == nil {
				_, _ = w.Write([]byte(routes[i].Name))
			}
			return f.err
		}
	}
	return routes
}

const programToken = "a token of programs, long enough"

// TestProgramRoles: the token of programs is good for their routes and for nothing else; a cookie
// is not good for them, and the token of the dashboard is.
func TestProgramRoles(t *testing.T) {
	t.Parallel()
	f := &fakePrograms{}
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Programs, o.ProgramToken = f, programToken })
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	paths := strings.NewReplacer("{name}", "shops", "{worker}", "w", "{job}", "j", "{id}", "j", "{snapshot}", "s")
	for _, route := range programTable() {
		path := "api/v1/" + paths.Replace(route.Path)
		before := f.served.Load()
		for _, token := range []string{"", "wrong", testToken[1:]} {
			res, body := r.do(t, route.Method, path, "{}", bearer(token)...)
			if res.status != http.StatusUnauthorized || !strings.Contains(body, "--program-token-file") {
				t.Errorf("%s %s with the token %q: %d %s", route.Method, path, token, res.status, body)
			}
		}
		if f.served.Load() != before {
			t.Fatalf("%s %s was served without a login", route.Method, path)
		}
		for _, token := range []string{programToken, testToken} {
			if res, body := r.do(t, route.Method, path, "{}", bearer(token)...); res.status != http.StatusOK ||
				body != route.Name {
				t.Errorf("%s %s with a token: %d %s", route.Method, path, res.status, body)
			}
		}
	}
	for _, route := range r.s.table() {
		if route.Public || route.Name == "getLogin" || route.Name == "streamEvents" {
			continue
		}
		path := "api/v1/" + strings.NewReplacer("{id}", "j1", "{name}", "shops", "{shard}", "0", "{entry}", "1",
			"{group}", "3").Replace(route.Path)
		if res, _ := r.do(t, route.Method, path, "", bearer(programToken)...); res.status != http.StatusForbidden {
			t.Errorf("%s %s with the token of programs: %d", route.Method, path, res.status)
		}
	}
	if _, body := r.do(t, "GET", "api/v1/login", "", bearer(programToken)...); !strings.Contains(body,
		`"user":"program"`) || !strings.Contains(body, `"programs":1`) {
		t.Errorf("the login of a program: %s", body)
	}
	r.logIn(t, testToken)
	if res, _ := r.do(t, "POST", "api/v1/swarms", "{}"); res.status != http.StatusUnauthorized {
		t.Errorf("with a cookie alone: %d", res.status)
	}
}

// TestProgramErrors: errors of programs have their status, and a server without programs says how
// to start one.
func TestProgramErrors(t *testing.T) {
	t.Parallel()
	f := &fakePrograms{err: httpapi.Errorf(http.StatusConflict, "swarm shops: exists already")}
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Programs, o.ProgramToken = f, programToken })
	res, body := r.do(t, "POST", "api/v1/swarms", "{}", "Authorization", "Bearer "+programToken)
	if res.status != http.StatusConflict || !strings.Contains(body, "exists already") {
		t.Errorf("a swarm that exists: %d %s", res.status, body)
	}
	r = opened(t, newFake(fakeState()), nil)
	res, body = r.do(t, "POST", "api/v1/swarms", "{}", "Authorization", "Bearer "+testToken)
	if res.status != http.StatusNotFound || !strings.Contains(body, "--programs") {
		t.Errorf("without programs: %d %s", res.status, body)
	}
	if _, err := New(Options{Cluster: newFake(fakeState()), Listen: "127.0.0.1:0", ProgramToken: "short"}); err == nil {
		t.Error("a short token of programs is taken")
	}
}

// TestModels: the token of programs is good for the routes of models, errors have the form of
// OpenAI, and a server without models says how to start one.
func TestModels(t *testing.T) {
	t.Parallel()
	f := &fakePrograms{}
	r := opened(t, newFake(fakeState()), func(o *Options) { o.Models, o.ProgramToken = fakeModels{f}, programToken })
	for _, route := range modelTable() {
		path := "v1/" + strings.ReplaceAll(route.Path, "{model}", "gopher")
		if res, body := r.do(t, route.Method, path, "{}", "Authorization", "Bearer wrong"); res.status !=
			http.StatusUnauthorized || !strings.Contains(body, `"code":"invalid_api_key"`) {
			t.Errorf("%s %s with a wrong token: %d %s", route.Method, path, res.status, body)
		}
		if res, body := r.do(t, route.Method, path, "{}", "Authorization", "Bearer "+programToken); res.status !=
			http.StatusOK || body != route.Name {
			t.Errorf("%s %s: %d %s", route.Method, path, res.status, body)
		}
	}
	if res, body := r.do(t, "GET", "v1/files", ""); res.status != http.StatusNotFound ||
		!strings.HasPrefix(body, `{"error":{"message":"there is no such route`) {
		t.Errorf("a route that is not there: %d %s", res.status, body)
	}
	r = opened(t, newFake(fakeState()), nil)
	if res, body := r.do(t, "GET", "v1/models", ""); res.status != http.StatusNotFound ||
		!strings.Contains(body, "--models") {
		t.Errorf("without models: %d %s", res.status, body)
	}
}

type fakeModels struct{ *fakePrograms }

func (f fakeModels) Routes() []httpapi.Route {
	routes := modelTable()
	for i := range routes {
		routes[i].Serve = func(w http.ResponseWriter, _ *httpapi.Request) error {
			_, err := w.Write([]byte(routes[i].Name))
			return err
		}
	}
	return routes
}
