package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

// policy is the content security policy of every answer. Scripts and styles come from this origin
// only, and no string becomes HTML or script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// guard wraps the routes with the checks of all requests: security headers, the path prefix, the
// Host header and the origin of requests that change something. The headers come first, because
// refusals need them too. The route checks the login afterwards.
func (s *Server) guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if !s.hostAllowed(r.Host) {
			httpapi.Errorf(http.StatusMisdirectedRequest,
				"the Host of the request is not allowed: add it to the hosts of "+
					"the dashboard").
				Write(w)
			return
		}
		if p := s.o.Prefix; p != "" {
			rest, found := strings.CutPrefix(r.URL.Path, p)
			switch {
			case found && rest == "":
				http.Redirect(w, r, p+"/", http.StatusPermanentRedirect)
				return
			case found && rest[0] == '/': // else a proxy has stripped the prefix
				http.StripPrefix(p, next).ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed reports whether a browser may use a Host header. A page of another site that rebinds
// its name to this machine sends its own name, which is not in the list. It cannot send a literal
// address, because a browser resolves no literal address.
func (s *Server) hostAllowed(host string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false // a name such as 127.0.0.1:80.example.org
		}
		name = h
	} else if n := len(name); n > 1 && name[0] == '[' && name[n-1] == ']' {
		name = name[1 : n-1]
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if s.hosts[name] {
		return true
	}
	if s.local {
		return httpapi.Loopback(name)
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" || name == "localhost"
}

// ProxyHeader is the header in which a proxy proves that it is the proxy.
const ProxyHeader = "X-Exoswarm-Proxy"

// fromProxy reports whether the peer of the connection is a trusted proxy that knows the secret.
// Only its headers about the browser count.
func (s *Server) fromProxy(r *http.Request) bool {
	if !s.o.BehindProxy || !httpapi.SameSecret(r.Header.Get(ProxyHeader), s.o.ProxySecret) {
		return false
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, p := range s.o.Proxies {
		if p.Contains(from.Addr().Unmap()) {
			return true
		}
	}
	return false
}

func (s *Server) encrypted(r *http.Request) bool {
	return r.TLS != nil || s.fromProxy(r) && r.Header.Get("X-Forwarded-Proto") == "https"
}
