package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Route is one operation of an API. The handlers and the description (Describe) are made from
// tables of routes, so they agree.
type Route struct {
	// Method is the method of HTTP. Path is below the prefix of the API, with {id} for parameters.
	Method, Path string
	// Server is the address of the route, if it is another than the API has.
	Server string
	// Failure is a value of the type of answers that are not 2xx; nil: Failure.
	Failure any
	// Name is the operationId: unique and stable, because clients are made from it.
	Name    string
	Summary string // one sentence
	Params  []Param
	// Answer is a value of the type of the answer; nil: the answer has no body.
	Answer any
	// Media is the type of the answer; empty: JSON. The schema of another type than text is binary.
	Media string
	Body  any    // a value of the type of the request's body; nil: none
	Takes string // type of the request's body, if that is not JSON
	// Public routes need no login.
	Public bool
	// Admit decides before anything of the request is read whether it may be served; nil: it may.
	Admit func(w http.ResponseWriter, r *http.Request) error
	// Serve answers a request, or fails before it has written anything.
	Serve func(w http.ResponseWriter, r *Request) error
}

// Request is a request with the checked parameters of its route.
type Request struct {
	*http.Request
	Params Params
	// Key is the same for two requests of a route whose parameters are all the same, given or by
	// default.
	Key string
}

// Param is a parameter of a route. A request with a value that does not fit it is refused with
// status
// 400. Parameters that a route does not have are ignored.
type Param struct {
	Name, In, Kind string // In: path or query; Kind: string, integer or boolean
	Doc            string
	Default        string // value of a query parameter that is absent
	Min, Max       int    // of an integer
	Values         []string
}

const maxParam = 256

// Params are the checked parameters of a request, by name.
type Params map[string]string

// Int returns an integer parameter.
func (p Params) Int(name string) int {
	n, _ := strconv.Atoi(p[name]) // checked by check
	return n
}

// check returns an error that names the values which fit, if v does not fit.
func (p *Param) check(v string) error {
	if len(v) > maxParam {
		return fmt.Errorf("%s is longer than %d bytes", p.Name, maxParam)
	}
	switch p.Kind {
	case "integer":
		if n, err := strconv.Atoi(v); err != nil || n < p.Min || n > p.Max {
			return fmt.Errorf("%s=%q: use %d to %d", p.Name, v, p.Min, p.Max)
		}
	case "boolean":
		if v != "true" && v != "false" {
			return fmt.Errorf("%s=%q: use true or false", p.Name, v)
		}
	default:
		if p.Values != nil && !slices.Contains(p.Values, v) {
			return fmt.Errorf("%s=%q: use one of %q", p.Name, v, p.Values)
		}
	}
	return nil
}

func (t *Route) read(r *http.Request) (*Request, error) {
	out := &Request{Request: r, Params: Params{}, Key: t.Name}
	query := r.URL.Query()
	for i := range t.Params {
		p := &t.Params[i]
		v := r.PathValue(p.Name)
		if p.In == "query" {
			if v = query.Get(p.Name); v == "" {
				v = p.Default
			}
		}
		if err := p.check(v); err != nil {
			return nil, err
		}
		out.Params[p.Name] = v
		out.Key += "?" + url.QueryEscape(v)
	}
	return out, nil
}

// Register adds routes below a prefix, which ends in a slash, to a mux. fail answers the errors of
// Admit and Serve, and of parameters.
func Register(
	mux *http.ServeMux, prefix string, routes []Route, fail func(w http.ResponseWriter, r *http.Request, err error),
) {
	for _, t := range routes {
		mux.HandleFunc(t.Method+" "+prefix+t.Path, func(w http.ResponseWriter, r *http.Request) {
			if t.Admit != nil {
				if err := t.Admit(w, r); err != nil {
					fail(w, r, err)
					return
				}
			}
			in, err := t.read(r)
			if err != nil {
				err = Errorf(http.StatusBadRequest, "%v", err)
			} else {
				err = t.Serve(w, in)
			}
			if err != nil {
				fail(w, r, err)
			}
		})
	}
}
