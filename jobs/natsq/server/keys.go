package server

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// keyIDFile names, in the data folder, the key that the streams are encrypted with. The NATS server
// itself starts without streams whose key it does not have, and says so in its own log only.
const keyIDFile = "exoswarm.key-id"

// encrypt sets the options of a server that encrypts its streams, and refuses keys that cannot read
// the existing streams.
func (o Options) encrypt(opts *natsd.Options) error {
	stored, err := os.ReadFile(filepath.Join(o.Dir, keyIDFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("key of the streams: %w", err)
	}
	id := strings.TrimSpace(string(stored))
	key, former := o.Keys.Current(), o.Keys.Former()
	switch {
	case key == nil && id == "":
		return nil
	case key == nil:
		return invalid("the streams in %s are encrypted: give the key (--key-file)", o.Dir)
	case len(former) > 1:
		// All streams are encrypted anew as a server starts, so older keys are of no use.
		return invalid("%d former keys in the key file: a server reads one: take the others out", len(former))
	}
	opts.JetStreamKey, opts.JetStreamCipher = hex.EncodeToString(key), natsd.AES
	known := id == "" || id == keyID(key)
	if len(former) == 1 {
		opts.JetStreamOldKey = hex.EncodeToString(former[0])
		known = known || id == keyID(former[0])
	}
	if !known {
		return invalid("the streams in %s are encrypted with another key than the keys of the key file: add the "+
			"former key as its second line", o.Dir)
	}
	return nil
}

// encrypted notes the key of the streams, once the server has started and all of them have it.
func (o Options) encrypted() error {
	key := o.Keys.Current()
	if key == nil {
		return nil
	}
	path := filepath.Join(o.Dir, keyIDFile)
	if stored, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(stored)) == keyID(key) {
		return nil
	}
	if err := os.WriteFile(path, []byte(keyID(key)+"\n"), 0o600); err != nil {
		return fmt.Errorf("key of the streams: %w", err)
	}
	return nil
}

func keyID(key []byte) string {
	id := keyring.ID(key)
	return hex.EncodeToString(id[:])
}
