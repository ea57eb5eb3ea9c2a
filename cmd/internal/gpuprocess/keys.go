package gpuprocess

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// Each shard has a key for its store. A file in each of its folders has that key, encrypted with
// the operator's key (RFC 0026), so that a rotation writes these files again and no page. The file
// is the magic, the id of the operator's key, a nonce, and the sealed key.
const (
	keyFile  = "KEY"
	keyMagic = "EXOKEY1\n"
	nonceLen = 12
)

// errKey is the error for a store whose key cannot be read: it is encrypted with an operator's key
// that is not in the key file, or its file is damaged.
var errKey = errors.New("the store's key cannot be read")

// gcm returns AES in Galois/Counter mode for a key. A key has 16, 24 or 32 bytes; any other length
// is an error.
func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// wrap encrypts the key of a store with the current key of the operator. The name of the store is
// authenticated with it: the file of one store does not open another one.
func wrap(ring *keyring.Ring, name string, key []byte) ([]byte, error) {
	aead, err := gcm(ring.Current())
	if err != nil {
		return nil, err
	}
	id := keyring.ID(ring.Current())
	out := append([]byte(keyMagic), id[:]...)
	nonce := make([]byte, nonceLen)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return aead.Seal(append(out, nonce...), nonce, key, []byte(name)), nil
}

// unwrap decrypts the result of wrap with the key of the ring that has its id. current reports
// whether that is the current key. Its errors wrap errKey. name is that with which the key was
// wrapped.
func unwrap(ring *keyring.Ring, name string, text []byte) (key []byte, current bool, err error) {
	const head = len(keyMagic) + 8 // magic and id
	if len(text) < head+nonceLen || string(text[:len(keyMagic)]) != keyMagic {
		return nil, false, fmt.Errorf("%w: the file %s is damaged", errKey, keyFile)
	}
	if ring == nil {
		return nil, false, fmt.Errorf("%w: it is encrypted: give the key (--key-file)", errKey)
	}
	for i, k := range append([][]byte{ring.Current()}, ring.Former()...) {
		if keyring.ID(k) != [8]byte(text[len(keyMagic):head]) {
			continue
		}
		aead, err := gcm(k)
		if err != nil {
			return nil, false, err
		}
		key, err := aead.Open(nil, text[head:head+nonceLen], text[head+nonceLen:], []byte(name))
		if err != nil {
			return nil, false, fmt.Errorf("%w: the file %s is damaged", errKey, keyFile)
		}
		return key, i == 0, nil
	}
	return nil, false, fmt.Errorf("%w: it is encrypted with a key that is not in the key file: add it as a further "+
		"line", errKey)
}

// storeKey returns the key of a store, which it reads from the folders of the tiers. It makes a key
// for a new store, and writes the files again when the operator's key has changed or a tier has
// none. It returns nil when neither the agent nor the store has a key. It is called before the
// store is opened, while no other process has it open.
func (c *checkpoints) storeKey(name string) ([]byte, error) {
	var key []byte
	var current bool
	missing := false
	var unreadable error
	// Any folder with a readable key is enough: the key is the same in all.
	for _, t := range c.tiers {
		text, err := os.ReadFile(filepath.Join(t.dir, name, keyFile))
		if err != nil { // a failed disk, or a new tier
			missing = true
			continue
		}
		k, now, err := unwrap(c.keys, name, text)
		switch {
		case err != nil:
			unreadable = err
			missing = true
		case key == nil:
			key, current = k, now
		}
	}
	switch {
	case key == nil && unreadable != nil:
		return nil, unreadable
	case c.keys == nil:
		return nil, nil
	case key == nil:
		key = make([]byte, keyring.KeyBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
	case current && !missing:
		return key, nil
	}
	text, err := wrap(c.keys, name, key)
	if err != nil {
		return nil, err
	}
	written := 0
	var errs []error
	for _, t := range c.tiers {
		dir := filepath.Join(t.dir, name)
		if err := writeDurably(dir, keyFile, text); err != nil {
			errs = append(errs, err)
			continue
		}
		written++
	}
	if written == 0 { // the key must be durable before the first page, which could not be read without it
		return nil, fmt.Errorf("store the key: %w", errors.Join(errs...))
	}
	return key, nil
}

// writeDurably replaces a file of a folder, and makes the folder if it does not exist. After a
// power cut the file has the old content or the new one. It writes a temporary file beside the
// target, syncs it, renames it and syncs the folder.
func writeDurably(dir, file string, content []byte) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, file+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, file)); err != nil {
		return err
	}
	// The rename is durable with the folder.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// locked returns an error when a checkpoint cannot be read with the keys of the agent. A shard with
// an unreadable checkpoint starts from its log and overwrites the checkpoint, so an agent with the
// wrong key file must not start. It runs before the agent takes its first lease.
func (c *checkpoints) locked() error {
	ids, _ := c.Shards() // tiers that cannot be listed are not checked
	for _, id := range ids {
		name, err := folder(id.Swarm, id.Shard)
		if err != nil {
			continue
		}
		for _, t := range c.tiers {
			text, err := os.ReadFile(filepath.Join(t.dir, name, keyFile))
			if err != nil {
				continue
			}
			if _, _, err := unwrap(c.keys, name, text); err != nil {
				return fmt.Errorf("checkpoint %s: %w", filepath.Join(t.dir, name), err)
			}
		}
	}
	return nil
}
