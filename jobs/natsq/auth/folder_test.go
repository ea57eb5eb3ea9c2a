package auth_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
)

func open(t *testing.T, dir string) *auth.Folder {
	t.Helper()
	f, err := auth.Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// files reads everything below a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInit: what is made is shown before, is readable by its owner alone, and is left as it is by
// everything that comes after.
func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "auth")
	f := open(t, dir)
	o := auth.Options{Tenants: []string{"acme"}}
	plan, err := f.Plan(o)
	if err != nil || len(plan) == 0 {
		t.Fatal(plan, err)
	}
	if made := files(t, dir); len(made) != 1 { // the lock
		t.Errorf("a plan made %v", made)
	}
	done, err := f.Apply(o)
	if err != nil || !slices.Equal(plan, done) {
		t.Fatalf("%v, not as planned: %v, %v", done, plan, err)
	}
	first := files(t, dir)
	var seeds []string
	for name, text := range first {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if secret := strings.HasPrefix(name, "keys/") || strings.HasPrefix(name, "creds/"); secret &&
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, info.Mode())
		}
		if strings.HasPrefix(name, "keys/") {
			seeds = append(seeds, strings.TrimSpace(text))
		}
	}
	for name, text := range first {
		for _, s := range seeds {
			if !strings.HasPrefix(name, "keys/") && strings.Contains(text, s) {
				t.Errorf("%s has a key in it", name)
			}
		}
	}
	if again, err := f.Apply(o); err != nil || len(again) != 0 {
		t.Errorf("%v, %v", again, err)
	}
	for name, text := range files(t, dir) {
		if first[name] != text {
			t.Errorf("%s changed", name)
		}
	}
	if _, err := f.Apply(auth.Options{Tenants: []string{"umbrella"}}); err != nil {
		t.Fatal(err)
	}
	for name, text := range files(t, dir) {
		if before, ok := first[name]; ok && before != text && name != auth.ConfigName {
			t.Errorf("a new tenant changed %s", name)
		}
	}
	if all, err := f.Tenants(); err != nil || !slices.Equal(all, []string{"acme", "umbrella"}) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := auth.Open(dir, false); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("two at a time: %v", err)
	}
	f.Close()
	f.Close()
	open(t, dir)
}

// TestRoleChanged: a role that is not as this version has it is shown, subject by subject, and
// signed anew; users stay.
func TestRoleChanged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "auth")
	f := open(t, dir)
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	c, err := jwt.DecodeAccountClaims(strings.TrimSpace(before["accounts/cluster.jwt"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.SigningKeys {
		if u, ok := s.(*jwt.UserScope); ok && u.Role == auth.Agent {
			u.Template.Pub.Allow = slices.DeleteFunc(u.Template.Pub.Allow,
				func(s string) bool { return s == "exo.log.>" })
			u.Template.Sub.Allow.Add("exo.old.>")
		}
	}
	key, err := nkeys.FromSeed(bytes.TrimSpace([]byte(before["keys/operator.nk"])))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Encode(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "accounts/cluster.jwt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := f.Apply(auth.Options{})
	if err != nil || len(done) != 2 || done[0] != (auth.Change{What: "role", Name: "cluster.agent", Do: "+publish " +
		"exo.log.>, -subscribe exo.old.>"}) {
		t.Errorf("%v, %v", done, err)
	}
	if plan, err := f.Plan(auth.Options{}); err != nil || len(plan) != 0 {
		t.Errorf("%v, %v", plan, err)
	}
	after := files(t, dir)
	for name, text := range before {
		if (strings.HasPrefix(name, "users/") || strings.HasPrefix(name, "creds/") ||
			strings.HasPrefix(name, "keys/")) && after[name] != text {
			t.Errorf("%s changed", name)
		}
	}
}

// TestDamaged: what is missing and cannot be made anew is named, with the cure, and nothing is
// changed.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for file, harm := range map[string]func(path string) error{
		"keys/operator.nk":              os.Remove,
		"keys/cluster.nk":               os.Remove,
		"keys/cluster.agent.nk":         os.Remove,
		"keys/tenant-acme.submitter.nk": os.Remove,
		"operator.jwt":                  os.Remove,
		"accounts/cluster.jwt":          func(p string) error { return os.WriteFile(p, []byte("x.y.z"), 0o600) },
		"keys/viewers.nk":               func(p string) error { return os.WriteFile(p, []byte("SAxx"), 0o600) },
	} {
		t.Run(strings.ReplaceAll(file, "/", " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "auth")
			f := open(t, dir)
			if _, err := f.Apply(auth.Options{Tenants: []string{"acme"}}); err != nil {
				t.Fatal(err)
			}
			if err := harm(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			before := files(t, dir)
			if _, err := f.Apply(auth.Options{Tenants: []string{"new"}}); err == nil ||
				!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "from a backup") {
				t.Error(err)
			}
			after := files(t, dir)
			if len(before) != len(after) {
				t.Errorf("%d files became %d", len(before), len(after))
			}
		})
	}
	// A call that was cut off continues where it was.
	dir := filepath.Join(t.TempDir(), "auth")
	f := open(t, dir)
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"operator.jwt", "accounts", "users", "auth.conf"} {
		if err := os.RemoveAll(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	f = open(t, dir)
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Error(err)
	}
	if plan, err := f.Plan(auth.Options{}); err != nil || len(plan) != 0 {
		t.Errorf("%v, %v", plan, err)
	}
}
