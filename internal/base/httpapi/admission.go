package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"
)

// Gate bounds the requests in progress.
type Gate chan struct{}

// NewGate returns a gate for n requests.
func NewGate(n int) Gate { return make(Gate, n) }

// Enter reports whether there is a place for another request. The caller calls Leave after true.
func (g Gate) Enter() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

// Leave frees the place of a request.
func (g Gate) Leave() { <-g }

// Bearer returns the token of a request with the header "Authorization: Bearer TOKEN".
func Bearer(r *http.Request) (token string, ok bool) {
	kind, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), found && strings.EqualFold(kind, "Bearer")
}

// SameSecret compares secrets in constant time.
func SameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Loopback reports whether only this machine reaches a listener on host. A name other than
// localhost is not resolved and counts as reachable from outside.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() && ip.Zone() == ""
}
