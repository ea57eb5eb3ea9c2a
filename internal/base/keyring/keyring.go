// Package keyring reads the keys that encrypt data at rest from a file that an operator keeps. A
// key is never printed, logged or part of an error.
package keyring

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// KeyBytes is the length of a key: AES-256.
const KeyBytes = 32

// ErrInvalid is a file that cannot be used as a key file.
var ErrInvalid = errors.New("invalid key file")

// Ring is a key to encrypt with, and former keys that data may still be encrypted with. A nil Ring
// encrypts nothing.
type Ring struct {
	keys [][]byte // the first encrypts
}

// Read reads a key file: a key a line, as 64 hexadecimal digits. The first encrypts; the others are
// former keys that only decrypt, which is how keys are rotated. Empty lines and comments, which
// begin with #, are skipped. Only the file's owner may have any access to it (mode 0600 or 0400),
// or the file is refused.
func Read(path string) (*Ring, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %v: only its owner may have access to it (chmod 600)", ErrInvalid, path,
			mode)
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	r := &Ring{}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := hex.DecodeString(line)
		if err != nil || len(key) != KeyBytes { // without err, which quotes what it could not read
			return nil, fmt.Errorf("%w: line %d of %s is no key of %d hexadecimal digits: make one with openssl "+
				"rand -hex %d", ErrInvalid, n, path, 2*KeyBytes, KeyBytes)
		}
		r.keys = append(r.keys, key)
	}
	if len(r.keys) == 0 {
		return nil, fmt.Errorf("%w: %s has no key: make one with openssl rand -hex %d", ErrInvalid, path, KeyBytes)
	}
	return r, nil
}

// Current is the key that encrypts; nil of a nil Ring. The caller does not change it.
func (r *Ring) Current() []byte {
	if r == nil {
		return nil
	}
	return r.keys[0]
}

// Former are the keys that only decrypt, the latest first. The caller does not change them.
func (r *Ring) Former() [][]byte {
	if r == nil {
		return nil
	}
	return r.keys[1:]
}

// ID distinguishes keys without revealing them: the first eight bytes of a hash over the key and a
// fixed text.
func ID(key []byte) [8]byte {
	sum := sha256.Sum256(append([]byte("exoswarm key id\x00"), key...))
	return [8]byte(sum[:8])
}

// String keeps a Ring that is printed by mistake from showing its keys.
func (r *Ring) String() string {
	if r == nil {
		return "no keys"
	}
	return fmt.Sprintf("%d keys", len(r.keys))
}

// GoString does the same for %#v.
func (r *Ring) GoString() string { return r.String() }
