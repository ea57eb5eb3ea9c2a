package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestComputeRoute: requests reach the computer with the id of the swarm, and its errors have their
// status. Requests without a login, of another type, origin or form do not reach it.
func TestComputeRoute(t *testing.T) {
	fake := newFake(fakeState())
	swarm := fake.State().Swarms[0]
	var asked []string
	var fails error
	r := opened(t, fake, func(o *Options) {
		o.Compute = func(
			_ context.Context, id string, in swarmclient.ComputeRequest,
		) (*swarmclient.ComputeAnswer, error) {
			asked = append(asked, fmt.Sprintf("%s %.20s %d %d", id, in.Text, in.First, in.Groups))
			group := 7
			return &swarmclient.ComputeAnswer{By: swarms.ByGroup, Nodes: []swarmclient.ComputedNode{
				{Group: &group, Values: map[string]any{"out": 1.5}},
			}}, fails
		}
	})
	login, form := []string{"Authorization", "Bearer " + testToken}, []string{"Content-Type", "application/json"}
	both := append(append([]string{}, login...), form...)
	const body = `{"text":"mean(x) by group","first":7,"groups":1}`
	path := "api/v1/swarms/" + swarm.ID + "/compute"
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		fails                    error
		status                   int
		want                     string
	}{
		{
			"a text", "POST", path, body, both, nil, http.StatusOK,
			`{"by":"group","nodes":[{"group":7,"values":{"out":1.5}}]}`,
		},
		{
			"a long text", "POST", path, `{"text":"` + strings.Repeat("x", swarms.MaxExpression) + `"}`, both, nil,
			http.StatusOK, "1.5",
		},
		{"no login", "POST", path, body, form, nil, http.StatusUnauthorized, "log in"},
		{"a form", "POST", path, body, login, nil, http.StatusUnsupportedMediaType, "application/json"},
		{
			"another site", "POST", path, body, append([]string{"Sec-Fetch-Site", "cross-site"}, both...), nil,
			http.StatusForbidden, "",
		},
		{"GET", "GET", path, "", both, nil, http.StatusNotFound, ""},
		{"an unknown field", "POST", path, `{"txt":"mean(x)"}`, both, nil, http.StatusBadRequest, "txt"},
		{
			"too long", "POST", path, `{"text":"` + strings.Repeat("x", maxComputeBody) + `"}`, both, nil,
			http.StatusBadRequest, "too large",
		},
		{"no swarm", "POST", "api/v1/swarms/none/compute", body, both, nil, http.StatusNotFound, "none"},
		{
			"a wrong text", "POST", path, body, both, jobs.Errorf(jobs.CodeInvalid, "compute: column 3"),
			http.StatusBadRequest, "column 3",
		},
		{
			"a login that may not", "POST", path, body, both, fmt.Errorf("append: %w", jobs.ErrDenied),
			http.StatusForbidden, "append",
		},
		{
			"too many", "POST", path, body, both, fmt.Errorf("busy: %w", jobs.ErrUnavailable),
			http.StatusServiceUnavailable, "busy",
		},
	} {
		asked, fails = nil, c.fails
		res, text := r.do(t, c.method, c.path, c.body, c.headers...)
		if res.status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %.200s, want %d with %q", c.name, res.status, text, c.status, c.want)
		}
		if reached := c.status == http.StatusOK || c.fails != nil; (len(asked) == 1) != reached {
			t.Errorf("%s: the computer was asked %q", c.name, asked)
		}
		if c.name == "a text" && asked[0] != swarm.ID+" mean(x) by group 7 1" {
			t.Errorf("the computer was asked %q", asked)
		}
	}
	r = opened(t, fake, nil)
	if res, text := r.do(t, "POST", path, body, both...); res.status != http.StatusNotFound {
		t.Errorf("without a computer: %d %s", res.status, text)
	}
}
