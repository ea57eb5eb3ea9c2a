// Package auth makes and keeps the keys, accounts and users of a cluster, in one folder of an
// administrator's machine.
package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/exoswarm/exoswarm/jobs"
)

// Folder is the folder with everything: keys (secret, 0600), credentials of users (secret, 0600),
// and the signed claims of operator, accounts and users, which are not. Whoever has its keys is the
// cluster's administrator; servers and agents need none of it but auth.conf and a file of creds.
// One process uses it at a time.
type Folder struct {
	dir  string
	lock *os.File
}

// ConfigName is the file, in the folder, that a server's configuration includes.
const ConfigName = "auth.conf"

// Open opens a folder, and makes it where there is none and make is set. Close it.
func Open(dir string, make bool) (*Folder, error) {
	if make {
		for _, d := range []string{"keys", "creds", "accounts", "users"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				return nil, invalid("%v: choose another folder (--dir)", err)
			}
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, invalid("%v: make the folder first: exoswarm auth init --dir %s --yes", err, dir)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, invalid("another command uses %s this moment: try again", dir)
	}
	return &Folder{dir, lock}, nil
}

// Close lets others use the folder. A second call does nothing.
func (f *Folder) Close() { _ = f.lock.Close() }

func (f *Folder) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

func (f *Folder) keyFile(name string) string     { return f.path("keys", name+".nk") }
func (f *Folder) accountFile(name string) string { return f.path("accounts", name+".jwt") }
func (f *Folder) userFile(name string) string    { return f.path("users", name+".jwt") }
func (f *Folder) operatorFile() string           { return f.path("operator.jwt") }

// CredsFile is where the credentials of a user are.
func (f *Folder) CredsFile(name string) string { return f.path("creds", name+".creds") }

// ConfigFile is what a server's configuration includes.
func (f *Folder) ConfigFile() string { return f.path(ConfigName) }

// write replaces a file as a whole.
func write(file string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is gone when all went well
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

// key reads a key; nil when there is none.
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

// mustKey reads a key that has to be there.
func (f *Folder) mustKey(name string) (nkeys.KeyPair, error) {
	k, err := f.key(name)
	if err == nil && k == nil {
		err = invalid("the key %s is missing: put it back from a backup; a new one would need new credentials for "+
			"everybody", f.keyFile(name))
	}
	return k, err
}

// newKey makes a key, and never in the place of another.
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

// accountClaims reads an account; nil when there is none.
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

// names lists what is in one of the folders, by name.
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

// Tenants lists the tenants that have an account, by name.
func (f *Folder) Tenants() (all []string, err error) {
	accounts, err := f.names("accounts", ".jwt")
	for _, a := range accounts {
		if t, ok := strings.CutPrefix(a, tenantPrefix); ok {
			all = append(all, t)
		}
	}
	return all, err
}

// maxTenant leaves room for an id behind the tenant's name, which begins with it
// (docs/protocol.md).
const maxTenant = 32

// CheckTenant says whether a tenant can have an account. Its name and "--" begin the ids of its
// jobs, so it must be clear where it ends.
func CheckTenant(name string) error {
	if err := jobs.CheckID("tenant", name); err != nil {
		return err
	}
	if len(name) > maxTenant || strings.Contains(name, "--") || strings.HasSuffix(name, "-") {
		return invalid("tenant %q: use at most %d characters, no \"--\", and no \"-\" at the end", name, maxTenant)
	}
	return nil
}
