package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Folder is a folder with the keys (secret, mode 0600), the credentials of users (secret, mode
// 0600), and the signed claims of operator, accounts and users, which are not secret. One process
// uses it at a time, which a lock on a file ensures. Its methods are for one goroutine.
type Folder struct {
	dir  string
	lock io.Closer
}

// ConfigName is the name of the file in the folder that the configuration of a server includes.
const ConfigName = "auth.conf"

// Open opens and locks a folder. If make is set it makes a missing folder. It fails if another
// process has the folder open. The caller closes it.
func Open(dir string, make bool) (*Folder, error) {
	if make {
		for _, d := range []string{"keys", "creds", "accounts", "users"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				return nil, invalid("%v: choose another folder (--dir)", err)
			}
		}
	}
	lock, err := vfs.OS{}.Lock(filepath.Join(dir, ".lock"))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, invalid("another command uses the folder this moment: try again: %v", err)
	case err != nil:
		return nil, invalid("%v: make the folder first: exoswarm auth init --dir %s --yes", err, dir)
	}
	return &Folder{dir, lock}, nil
}

// Close releases the lock. A second call does nothing.
func (f *Folder) Close() { _ = f.lock.Close() }

func (f *Folder) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

// The files of a key, an account, a user and the operator.
func (f *Folder) keyFile(name string) string     { return f.path("keys", name+".nk") }
func (f *Folder) accountFile(name string) string { return f.path("accounts", name+".jwt") }
func (f *Folder) userFile(name string) string    { return f.path("users", name+".jwt") }
func (f *Folder) operatorFile() string           { return f.path("operator.jwt") }

// CredsFile returns the path of the credentials of a user. The file is secret.
func (f *Folder) CredsFile(name string) string { return f.path("creds", name+".creds") }

// ConfigFile returns the path of the file that the configuration of a server includes. It has no
// secret.
func (f *Folder) ConfigFile() string { return f.path(ConfigName) }

// write replaces a file as a whole: after a crash the file has the old content or the new one.
func write(file string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // after a success it does not exist
	_, err = tmp.Write(data)
	for _, step := range []func() error{func() error { return tmp.Chmod(mode) }, tmp.Sync, tmp.Close} {
		if serr := step(); err == nil {
			err = serr
		}
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("auth: write %s: %w", file, err)
	}
	return nil
}

func (f *Folder) key(name string) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(f.keyFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	k, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		return nil, invalid("%s is no key (%v): put it back from a backup", f.keyFile(name), err)
	}
	return k, nil
}

func (f *Folder) mustKey(name string) (nkeys.KeyPair, error) {
	k, err := f.key(name)
	if err == nil && k == nil {
		err = invalid("the key %s is missing: put it back from a backup; a new one would need new credentials for "+
			"everybody", f.keyFile(name))
	}
	return k, err
}

// newKey makes and stores a key. It never replaces a key.
func (f *Folder) newKey(name string, prefix nkeys.PrefixByte) (nkeys.KeyPair, error) {
	k, err := nkeys.CreatePair(prefix)
	if err != nil {
		return nil, fmt.Errorf("auth: make key %s: %w", name, err)
	}
	seed, err := k.Seed()
	if err != nil {
		return nil, fmt.Errorf("auth: make key %s: %w", name, err)
	}
	if _, err := os.Lstat(f.keyFile(name)); err == nil {
		return nil, invalid("the key %s exists already: it is not replaced", f.keyFile(name))
	}
	return k, write(f.keyFile(name), append(seed, '\n'), 0o600)
}

func (f *Folder) accountClaims(name string) (*jwt.AccountClaims, error) {
	text, err := readToken(f.accountFile(name))
	if err != nil || text == "" {
		return nil, err
	}
	c, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		return nil, invalid("%s: %v: put it back from a backup", f.accountFile(name), err)
	}
	return c, nil
}

func readToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("auth: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// names returns the names of the files with an extension in a sub-folder, sorted, without the
// extension.
func (f *Folder) names(dir, ext string) (all []string, err error) {
	entries, err := os.ReadDir(f.path(dir))
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ext); ok && !strings.HasPrefix(name, ".") {
			all = append(all, name)
		}
	}
	return all, nil
}

// Tenants returns the tenants that have an account, in the order of their names.
func (f *Folder) Tenants() (all []string, err error) {
	accounts, err := f.names("accounts", ".jwt")
	for _, a := range accounts {
		if t, ok := strings.CutPrefix(a, tenantPrefix); ok {
			all = append(all, t)
		}
	}
	return all, err
}

// maxTenant is the longest name of a tenant in bytes. It leaves room for the rest of an id, which
// begins with the name (docs/protocol.md).
const maxTenant = 32

// CheckTenant returns an error unless a tenant of this name can have an account. The ids of its
// jobs begin with the name and "--", so the end of the name must be unambiguous.
func CheckTenant(name string) error {
	if err := jobs.CheckID("tenant", name); err != nil {
		return err
	}
	if len(name) > maxTenant || strings.Contains(name, "--") || strings.HasSuffix(name, "-") {
		return invalid("tenant %q: use at most %d characters, no \"--\", and no \"-\" at the end", name, maxTenant)
	}
	return nil
}
