package access

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// Prefix is what the names of environment variables begin with that a job may refer to: env:TOKEN
// is EXOSWARM_SECRET_TOKEN. Without it a job could send any variable of the agent away.
const Prefix = "EXOSWARM_SECRET_"

const maxSize = 64 << 10

// Conditions that a caller can act on. The errors name the reference, never the value.
var (
	// ErrReference: the text is no reference.
	ErrReference = errors.New("a secret is env:NAME or file:NAME, with a name of letters, digits, '-', '_' and '.'")
	// ErrMissing: the agent has no such secret.
	ErrMissing = errors.New("this agent has no such secret")
)

// Value is a secret. However it is printed, it does not show.
type Value struct{ text string }

const hidden = "[secret]"

// Reveal returns the secret, for the place where it is used.
func (v Value) Reveal() string { return v.text }

// String implements fmt.Stringer.
func (v Value) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (v Value) GoString() string { return hidden }

// Format implements fmt.Formatter.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Store finds secrets. Its methods may be called from several goroutines.
type Store struct {
	root   *os.Root
	tenant string // whose secrets it has; empty for jobs without a tenant
	ofJob  bool   // a job asks
	host   string // that the secret is for
	hosts  map[boundSecrets][]string
}

// boundSecrets is a secret that may be sent to some hosts alone.
type boundSecrets struct{ tenant, name string }

// ErrSecretHost is returned for a secret that is bound to other hosts.
var ErrSecretHost = errors.New("its operator has bound the secret to other hosts (--secret)")

// Bind reads name=NAME,host=HOST and tenant=TENANT,name=NAME,host=HOST: the secret goes to that
// host alone, or those, where several are given. HOST may be *.DOMAIN. It is called before the
// store is used.
func (s *Store) Bind(list []string) error {
	for _, text := range list {
		tenant, rest, ok := Cut(text)
		n, host, _ := strings.Cut(rest, ",host=")
		n, is := strings.CutPrefix(n, "name=")
		if !is || !name.MatchString(n) || host == "" || ok && jobs.CheckID("tenant", tenant) != nil {
			return fmt.Errorf("--secret %q: write name=NAME,host=HOST or tenant=TENANT,name=NAME,host=HOST", text)
		}
		if s.hosts == nil {
			s.hosts = map[boundSecrets][]string{}
		}
		b := boundSecrets{tenant, n}
		s.hosts[b] = append(s.hosts[b], strings.ToLower(host))
	}
	return nil
}

// For returns the secrets that the jobs of a tenant may refer to: env:NAME is
// EXOSWARM_SECRET_TENANT__NAME for them, and file:NAME lies in the folder TENANT. Only the original
// is closed.
func (s *Store) For(tenant string) *Store {
	own := Store{ofJob: true}
	if s != nil {
		own = *s
		own.ofJob = true
	}
	if own.tenant = tenant; tenant == jobs.DefaultTenant {
		own.tenant = ""
	}
	return &own
}

// At returns the secrets that may be sent to a host.
func (s *Store) At(host string) *Store {
	own := *cmp.Or(s, &Store{})
	own.host = strings.ToLower(strings.TrimSuffix(host, "."))
	return &own
}

func (s *Store) sendable(n string) error {
	hosts := s.hosts[boundSecrets{s.tenant, n}]
	if len(hosts) == 0 || !s.ofJob {
		return nil
	}
	for _, h := range hosts {
		if below, wild := strings.CutPrefix(h, "*"); h == s.host || wild && strings.HasSuffix(s.host, below) {
			return nil
		}
	}
	return ErrSecretHost
}

// OpenSecrets returns a store that reads the files of a folder; without a folder only the
// environment has secrets. The caller closes it.
func OpenSecrets(dir string) (*Store, error) {
	if dir == "" {
		return &Store{}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of secrets: %w", err)
	}
	return &Store{root: root}, nil
}

// Close closes the folder. A second call does nothing.
func (s *Store) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

var name = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// Get returns the secret that ref names: env:NAME or file:NAME. Line ends at the end of a file are
// no part of it. Every call looks again, so that a secret can be changed while the agent runs.
func (s *Store) Get(ref string) (Value, error) {
	s = cmp.Or(s, &Store{})
	kind, n, _ := strings.Cut(ref, ":")
	if !name.MatchString(n) {
		return Value{}, ErrReference
	}
	if err := s.sendable(n); err != nil {
		return Value{}, fmt.Errorf("%s: %w", ref, err)
	}
	switch kind {
	case "env":
		variable := Prefix + n
		if s.tenant != "" {
			// it could be the end of another tenant's name and the beginning of a secret's
			if strings.Contains(s.tenant, "__") {
				return Value{}, fmt.Errorf("%s: %w: the tenant's name has __ in it: put the secret into the folder "+
					"of --secrets", ref, ErrMissing)
			}
			variable = Prefix + s.tenant + "__" + n
		}
		if v := os.Getenv(variable); v != "" && len(v) <= maxSize {
			return Value{v}, nil
		}
		return Value{}, fmt.Errorf("%s: %w: set %s, at most %d bytes", ref, ErrMissing, variable, maxSize)
	case "file":
		return s.file(ref, n)
	}
	return Value{}, ErrReference
}

func (s *Store) file(ref, n string) (Value, error) {
	missing := func(why string) (Value, error) {
		return Value{}, fmt.Errorf("%s: %w: %s", ref, ErrMissing, why)
	}
	if s.root == nil {
		return missing("start it with --secrets DIR")
	}
	if s.tenant != "" {
		n = s.tenant + "/" + n
	}
	info, err := s.root.Stat(n)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing("put a file of that name into its folder")
	case err != nil:
		return missing("its file cannot be read")
	case !info.Mode().IsRegular():
		return missing("its file must be a regular one")
	}
	f, err := s.root.Open(n)
	if err != nil {
		return missing("its file cannot be read")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return missing("its file cannot be read")
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || len(data) > maxSize {
		return missing(fmt.Sprintf("its file must have 1 to %d bytes", maxSize))
	}
	return Value{text}, nil
}

var reference = regexp.MustCompile(`\{((?:env|file):[^{}]*)\}`)

// Expand replaces every {env:NAME} and {file:NAME} in text by its secret. used says whether there
// was one.
func (s *Store) Expand(text string) (v Value, used bool, err error) {
	out := reference.ReplaceAllStringFunc(text, func(m string) string {
		used = true
		secret, gerr := s.Get(m[1 : len(m)-1])
		if err == nil {
			err = gerr
		}
		return secret.Reveal()
	})
	if err != nil {
		return Value{}, true, err
	}
	return Value{out}, used, nil
}
