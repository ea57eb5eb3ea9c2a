package auth

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// TestClaims: which accounts are a tenant's, what each may ask and hear of others, and what an
// account must have that a server takes.
func TestClaims(t *testing.T) {
	t.Parallel()
	for account, want := range map[string]string{
		"": "", tenantPrefix: "", tenantPrefix + "a": "a",
		tenantPrefix + "acme": "acme", clusterAccount: "", viewerAccount: "",
		strings.Repeat("x", len(tenantPrefix)+1): "", "x" + tenantPrefix + "a": "",
	} {
		if got := tenantOf(account); got != want {
			t.Errorf("%q is of tenant %q, want %q", account, got, want)
		}
	}
	key := func() string {
		k, err := nkeys.CreateAccount()
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return public
	}
	own, cluster := key(), key()
	for account, n := range map[string][2]int{
		clusterAccount: {1 + len(reads) + len(asked) + len(told), 0},
		viewerAccount:  {0, len(reads) + len(asked) + len(told)}, tenantPrefix + "acme": {0, 1}, "other": {0, 0},
	} {
		keys := map[string]string{}
		for _, r := range rolesOf(account) {
			keys[r.Name] = key()
		}
		have := jwt.NewAccountClaims(own)
		have.Revoke("*")
		have.Exports = append(have.Exports, &jwt.Export{Name: "mine", Subject: "mine", Type: jwt.Stream})
		c := wanted(have, account, own, cluster, keys)
		if c.Name != account || c.Subject != own || len(c.Exports) != n[0] || len(c.Imports) != n[1] ||
			len(c.Revocations) != 1 || len(c.SigningKeys) != len(keys) {
			t.Errorf("%s: %d exports, %d imports, %d keys: %+v", account, len(c.Exports), len(c.Imports),
				len(c.SigningKeys), c)
		}
		if streams := c.Limits.DiskStorage == jwt.NoLimit; streams != (account == clusterAccount) {
			t.Errorf("%s has streams: %v", account, streams)
		}
		for _, i := range c.Imports {
			if i.Account != cluster {
				t.Errorf("%s imports of %s", account, i.Account)
			}
		}
		if again := wanted(nil, account, own, cluster, keys); len(again.Revocations) != 0 || sameClaims(again, c) {
			t.Errorf("%s: revocations are lost or not compared", account)
		}
		if again := wanted(have, account, own, cluster, keys); !sameClaims(again, c) {
			t.Errorf("%s differs from itself", account)
		}
		if account != "other" {
			if err := check(c); err != nil {
				t.Error(err)
			}
		}
	}
	gateway := wanted(nil, tenantPrefix+"acme", own, cluster, nil).Imports[0]
	if gateway.Subject != "exo.tenant.acme.>" || gateway.LocalSubject != gatewayLocal || gateway.Type != jwt.Service {
		t.Errorf("%+v", gateway)
	}
	if !sameClaims(nil, nil) || sameClaims(nil, jwt.NewAccountClaims(own)) ||
		sameClaims(jwt.NewAccountClaims(own), nil) {
		t.Error("no account is one")
	}
	bad := jwt.NewAccountClaims(own)
	bad.Name = "bad"
	bad.Imports = append(bad.Imports, &jwt.Import{Subject: "a..b", Account: "none", Type: jwt.Service})
	if err := check(bad); err == nil || !strings.Contains(err.Error(), "account bad is not valid") {
		t.Error(err)
	}
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.sign(bad, operator); err == nil || !strings.Contains(err.Error(), "account bad is not valid") {
		t.Error(err)
	}
	if got := sorted([]string{
		tenantPrefix + "b", viewerAccount, tenantPrefix + "a",
		clusterAccount,
	}); !slices.Equal(got[2:], []string{tenantPrefix + "b", tenantPrefix + "a"}) {
		t.Error(got)
	}
}

// TestRoleNames: a role is found by its name, and a name that is none is refused with all there
// are, as the documentation lists them.
func TestRoleNames(t *testing.T) {
	t.Parallel()
	text := markdown()
	_, err := RoleNamed("none")
	if err == nil {
		t.Fatal("a role of no name")
	}
	var names []string
	for _, r := range Roles() {
		names = append(names, r.Name)
		if got, err := RoleNamed(r.Name); err != nil || got.Name != r.Name {
			t.Errorf("%s: %+v, %v", r.Name, got, err)
		}
		if !strings.Contains(text, r.Name) {
			t.Errorf("%s is not in the document", r.Name)
		}
	}
	if want := `role "none": use one of ` + strings.Join(names, ", "); !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
