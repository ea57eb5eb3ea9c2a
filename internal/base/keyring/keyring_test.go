package keyring_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

func write(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	one, two := strings.Repeat("0a", 32), strings.Repeat("fF", 32)
	r, err := keyring.Read(write(t, 0o600, "# of 2026\n"+one+"\n\n  "+two+"\n"))
	if err != nil || r.Current()[0] != 0x0a || len(r.Former()) != 1 || r.Former()[0][31] != 0xff {
		t.Fatalf("%v, %v", r, err)
	}
	if keyring.ID(r.Current()) == keyring.ID(r.Former()[0]) {
		t.Error("two keys have one id")
	}
	for _, text := range []string{fmt.Sprint(r), fmt.Sprintf("%+v", r), fmt.Sprintf("%#v", r)} {
		if text != "2 keys" {
			t.Errorf("printed: %q", text)
		}
	}
	var none *keyring.Ring
	if none.Current() != nil || none.Former() != nil || none.String() != "no keys" {
		t.Error("a nil Ring has keys")
	}
	for name, c := range map[string]struct {
		mode os.FileMode
		text string
		want string
	}{
		"readable by the group": {0o640, one, "chmod 600"},
		"readable by all":       {0o604, one, "chmod 600"},
		"empty":                 {0o600, "# nothing\n", "no key"},
		"too short":             {0o600, one + "\n" + one[2:], "line 2"},
		"no digits":             {0o600, strings.Repeat("zz", 32), "line 1"},
	} {
		_, err := keyring.Read(write(t, c.mode, c.text))
		if !errors.Is(err, keyring.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "0a0a") || strings.Contains(err.Error(), "zz") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if _, err := keyring.Read(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) ||
		!errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
}
