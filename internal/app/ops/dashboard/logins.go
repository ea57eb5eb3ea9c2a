package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

// Bounds of logins.
const (
	minToken  = 20             // characters of a lasting token
	loginFor  = 24 * time.Hour // a login ends this long after it began
	maxLogins = 1000           // the oldest ends when there are more
	maxBody   = 4 << 10        // bytes of a request's body
)

// logins are the browsers that have exchanged a token for a cookie. It keeps hashes of the cookies,
// in memory: a restart of the process ends all logins.
type logins struct {
	lasting string // Options.Token

	mu   sync.Mutex
	port string // part of the cookie's name, because cookies of one host are shared by its ports
	once string // the next one-time token; empty with a lasting one
	addr string // of the listener
	open map[[sha256.Size]byte]time.Time
}

func newLogins(port, lasting string) *logins {
	l := &logins{lasting: lasting, port: port, open: map[[sha256.Size]byte]time.Time{}}
	if lasting == "" {
		l.once = secret()
	}
	return l
}

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// listensAt sets the address of the listener, whose port the options may leave open.
func (l *logins) listensAt(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = addr
	if _, port, err := net.SplitHostPort(addr); err == nil {
		l.port = port
	}
}

// token returns the token that the next login needs.
func (l *logins) token() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lasting != "" {
		return l.lasting
	}
	return l.once
}

// exchange returns the value of a new cookie for a token. once reports that the token was a
// one-time token, which is used up then. ok is false for a wrong token. Expired logins are removed
// here, and the oldest login ends when there are maxLogins.
func (l *logins) exchange(token string, now time.Time) (value string, once, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lasting != "" && httpapi.SameSecret(token, l.lasting):
	case l.lasting == "" && httpapi.SameSecret(token, l.once):
		l.once, once = secret(), true
	default:
		return "", false, false
	}
	var oldest [sha256.Size]byte
	var first time.Time
	for key, ends := range l.open {
		if !now.Before(ends) {
			delete(l.open, key)
		} else if first.IsZero() || ends.Before(first) {
			oldest, first = key, ends
		}
	}
	if len(l.open) >= maxLogins {
		delete(l.open, oldest)
	}
	value = secret()
	l.open[sha256.Sum256([]byte(value))] = now.Add(loginFor)
	return value, once, true
}

// valid reports whether a cookie's value belongs to a login that lasts.
func (l *logins) valid(value string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends, found := l.open[sha256.Sum256([]byte(value))]
	return found && now.Before(ends)
}

func (l *logins) end(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, sha256.Sum256([]byte(value)))
}

// cookie returns the cookie of a request's login with a value. Under TLS its name makes browsers
// accept it from this host alone.
func (s *Server) cookie(r *http.Request, value string, seconds int) *http.Cookie {
	s.logins.mu.Lock()
	name := "exoswarm-" + s.logins.port
	s.logins.mu.Unlock()
	encrypted := s.encrypted(r)
	if encrypted {
		name = "__Host-" + name
	}
	return &http.Cookie{
		Name: name, Value: value, Path: "/", HttpOnly: true, Secure: encrypted, SameSite: http.SameSiteStrictMode,
		MaxAge: seconds,
	}
}

// user returns who sends a request: the name that a proxy or a client certificate gives, else
// "operator" for a login by token. ok is false without a login. A bearer token decides alone, so
// that a program notices a wrong token although it keeps cookies.
func (s *Server) user(r *http.Request) (name string, ok bool) {
	if s.fromProxy(r) {
		if name := r.Header.Get(s.o.AuthHeader); name != "" {
			return name, true
		}
	}
	if verified(r) {
		return r.TLS.PeerCertificates[0].Subject.CommonName, true
	}
	if s.isProgram(r) {
		return "program", true
	}
	if token, found := httpapi.Bearer(r); found {
		return "operator", s.o.Token != "" && httpapi.SameSecret(token, s.o.Token)
	}
	c, err := r.Cookie(s.cookie(r, "", 0).Name)
	return "operator", err == nil && s.logins.valid(c.Value, time.Now())
}

// Who is the login of a browser and what the pages need to know of the server.
type Who struct {
	User    string `json:"user"`
	Version string `json:"version"`
	// Actions reports whether the server may change the cluster (exoswarm ui --actions).
	Actions bool `json:"actions"`
	// ActionToken is what requests that change the cluster send in the header X-Exoswarm-Action.
	ActionToken string `json:"action_token,omitempty"`

	// Programs is the version of the routes of programs; 0: there are none.
	Programs int `json:"programs,omitempty"`

	Started time.Time `json:"started"` // the server
}

// Token is the body of a login.
type Token struct {
	Token string `json:"token"`
}

// login exchanges the token of the body for a cookie. The token is in the body of a POST, never in
// a query: addresses are stored in logs and in the history of browsers.
func (s *Server) login(w http.ResponseWriter, r *httpapi.Request) error {
	var in Token
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		return httpapi.Errorf(http.StatusBadRequest, `the body is not JSON of the form {"token":"..."}`)
	}
	value, once, ok := s.logins.exchange(in.Token, time.Now())
	if !ok {
		s.log.Warn("dashboard: login refused", "from", r.RemoteAddr)
		return httpapi.Errorf(
			http.StatusUnauthorized,
			"the token is wrong or was used before: open the newest address "+
				"that the program printed",
		)
	}
	http.SetCookie(w, s.cookie(r.Request, value, int(loginFor/time.Second)))
	w.WriteHeader(http.StatusNoContent)
	if once && s.o.Announce != nil {
		s.logins.mu.Lock()
		addr := s.logins.addr
		s.logins.mu.Unlock()
		s.o.Announce(s.LoginURL(addr))
	}
	return nil
}

func (s *Server) logout(w http.ResponseWriter, r *httpapi.Request) error {
	if c, err := r.Cookie(s.cookie(r.Request, "", 0).Name); err == nil {
		s.logins.end(c.Value)
	}
	http.SetCookie(w, s.cookie(r.Request, "", -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// isProgram reports whether a request has the token of programs, which admits to the routes of
// programs alone.
func (s *Server) isProgram(r *http.Request) bool {
	token, found := httpapi.Bearer(r)
	return found && s.o.ProgramToken != "" && httpapi.SameSecret(token, s.o.ProgramToken)
}

func (s *Server) hasLogin(_ http.ResponseWriter, r *http.Request) error {
	if _, ok := s.user(r); !ok {
		return httpapi.Errorf(http.StatusUnauthorized, "log in first: open the address that the program printed")
	}
	return nil
}

func (s *Server) mayLook(w http.ResponseWriter, r *http.Request) error {
	if s.isProgram(r) {
		return httpapi.Errorf(http.StatusForbidden, "the token of programs is for the routes of programs: use a login "+
			"of the dashboard")
	}
	return s.hasLogin(w, r)
}

// programsHeader has the version of the protocol in each answer to a program.
const programsHeader = "X-Exoswarm-Programs"

// mayProgram admits requests of programs. A cookie is not enough: a browser sends it with requests
// of other pages too.
func (s *Server) mayProgram(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set(programsHeader, strconv.Itoa(programs.Version))
	_, login := s.user(r)
	if s.isProgram(r) || login && (r.Header.Get("Authorization") != "" || s.fromProxy(r) || verified(r)) {
		return nil
	}
	return &httpapi.Error{
		Status: http.StatusUnauthorized, Bearer: true,
		Text: "the token is missing or wrong: send Authorization: Bearer TOKEN, with the token of " +
			"--program-token-file, or of program.token in the data folder of exoswarm serve",
	}
}

// verified reports whether a request has a client certificate that counts as a login.
func verified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }
