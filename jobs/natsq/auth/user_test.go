package auth

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/exoswarm/exoswarm/jobs"
)

func folder(t *testing.T, tenants ...string) (*Folder, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "auth")
	f, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if _, err := f.Apply(Options{Tenants: tenants}); err != nil {
		t.Fatal(err)
	}
	return f, dir
}

// TestUsers: which users can be made, which are listed and in which order, and what is left of a
// revoked user.
func TestUsers(t *testing.T) {
	t.Parallel()
	f, dir := folder(t, "acme", "beta")
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, u := range []User{
		{Name: "zoe", Role: Submitter, Tenant: "acme"},
		{Name: "ann", Role: Submitter, Tenant: "beta", Expires: soon},
		{Name: "bob", Role: Agent},
	} {
		creds, err := f.AddUser(u)
		if err != nil || creds != f.CredsFile(u.Name) {
			t.Fatal(creds, err)
		}
		data, err := os.ReadFile(creds)
		if err != nil || !strings.Contains(string(data), "BEGIN NATS USER JWT") ||
			!strings.Contains(string(data), "BEGIN USER NKEY SEED") {
			t.Errorf("%s: %v", creds, err)
		}
		text, err := jwt.ParseDecoratedJWT(data)
		if err != nil {
			t.Fatal(err)
		}
		c, err := jwt.DecodeUserClaims(text)
		if err != nil || c.Name != u.Name || !slices.Contains(c.Tags, "role:"+u.Role) ||
			slices.Contains(c.Tags, "tenant:"+u.Tenant) != (u.Tenant != "") ||
			c.Expires != map[bool]int64{true: soon.Unix()}[!u.Expires.IsZero()] || len(c.Pub.Allow) != 0 ||
			c.IssuerAccount == "" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	for name, c := range map[string]struct {
		u    User
		want string
	}{
		"no name": {User{Role: Agent}, "user"}, "a bad name": {User{Name: "a b", Role: Agent}, "user"},
		"no role": {User{Name: "x"}, "role"}, "another role": {User{Name: "x", Role: "king"}, "king"},
		"no tenant":      {User{Name: "x", Role: Submitter}, "belongs to a tenant: name it (--tenant)"},
		"a tenant":       {User{Name: "x", Role: Agent, Tenant: "acme"}, "belongs to no tenant"},
		"unknown tenant": {User{Name: "x", Role: Submitter, Tenant: "none"}, "exoswarm auth init --tenant none --yes"},
		"expired":        {User{Name: "x", Role: Agent, Expires: time.Now().Add(-time.Second)}, "would have expired"},
		"twice":          {User{Name: "bob", Role: Agent}, "user bob exists already"},
	} {
		if creds, err := f.AddUser(c.u); err == nil || creds != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v", name, creds, err)
		}
	}
	list := func() (all []string) {
		t.Helper()
		users, err := f.Users()
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range users {
			all = append(all, fmt.Sprintf("%s/%s/%s/%v/%v", u.Role, u.Tenant, u.Name, !u.Expires.IsZero(), u.Revoked))
		}
		return all
	}
	want := []string{
		"agent//agent/false/false", "agent//bob/false/false", "gpuagent//gpuagent/false/false",
		"operator//operator/false/false", "pusher//pusher/false/false", "submitter/acme/acme-submitter/false/false",
		"submitter/acme/zoe/false/false",
		"submitter/beta/ann/true/false", "submitter/beta/beta-submitter/false/false", "viewer//viewer/false/false",
	}
	got := list()
	if len(got) != len(want) || !slices.Equal(slices.DeleteFunc(slices.Clone(got),
		func(s string) bool { return !strings.HasPrefix(s, "submitter") }), want[5:9]) || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	users, err := f.Users()
	if i := slices.IndexFunc(users, func(u User) bool { return u.Name == "ann" }); err != nil || i < 0 ||
		!users[i].Expires.Equal(soon) {
		t.Errorf("%+v, %v", users, err)
	}
	before, err := os.ReadFile(f.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that is revoked already is no error
		if err := f.Revoke("zoe"); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(); !slices.Contains(got, "submitter/acme/zoe/false/true") ||
		!slices.Contains(got, "submitter/acme/acme-submitter/false/false") || len(got) != len(want) {
		t.Errorf("%v", got)
	}
	after, err := os.ReadFile(f.ConfigFile())
	if err != nil || string(after) == string(before) {
		t.Errorf("the configuration is as before: %v", err)
	}
	if plan, err := f.Plan(Options{}); err != nil || len(plan) != 0 {
		t.Errorf("a revocation is undone: %v, %v", plan, err)
	}
	if _, err := f.AddUser(User{Name: "zoe", Role: Agent}); err == nil {
		t.Error("the name of a revoked user is used again")
	}
	if err := f.Revoke("none"); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := f.Revoke("a/b"); err == nil || errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	// What is damaged is named.
	if err := os.WriteFile(f.userFile("bob"), []byte("x.y.z"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Users(); err == nil || !strings.Contains(err.Error(), "bob.jwt") {
		t.Error(err)
	}
	if err := os.Remove(f.userFile("bob")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.accountFile("tenant-beta")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Users(); err == nil || !strings.Contains(err.Error(), "its account is missing in "+dir) {
		t.Error(err)
	}
	if err := os.Remove(f.keyFile(roleKey("tenant-acme", Submitter))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.AddUser(User{Name: "new", Role: Submitter, Tenant: "acme"}); err == nil ||
		!strings.Contains(err.Error(), "is missing: put it back from a backup") {
		t.Error(err)
	}
	if _, err := os.Lstat(f.userFile("new")); err == nil {
		t.Error("a user without a key is recorded")
	}
	if err := os.RemoveAll(filepath.Join(dir, "users")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Users(); err == nil {
		t.Error("a folder without users is listed")
	}
}

// TestPlans: a plan names each thing that is made, in order, and nothing that is there.
func TestPlans(t *testing.T) {
	t.Parallel()
	f, err := Open(filepath.Join(t.TempDir(), "auth"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	count := func(plan []Change) (all map[string]int) {
		all = map[string]int{}
		for _, c := range plan {
			all[c.What]++
		}
		return all
	}
	keys, users := len(keysOf([]string{"acme"})), len(firstUsers([]string{"acme"}))
	plan, err := f.Plan(Options{Operator: "ours", Tenants: []string{"acme", "acme"}})
	if want := map[string]int{"key": keys, "operator": 1, "account": 4, "user": users, "file": 1}; err != nil ||
		!reflect.DeepEqual(count(plan), want) || !slices.Contains(plan, Change{"operator", "ours", "make"}) ||
		plan[len(plan)-1] != (Change{"file", "auth.conf", "write"}) {
		t.Errorf("%v, %v, want %v", plan, err, want)
	}
	done, err := f.Apply(Options{Operator: "ours", Tenants: []string{"acme"}})
	if err != nil || !slices.Equal(done, plan) {
		t.Errorf("%v, %v", done, err)
	}
	for o, want := range map[*Options]string{
		{Operator: "ours"}: "", {Operator: "theirs"}: `belongs to operator "ours"`,
		{Tenants: []string{"a--b"}}: "no \"--\"", {Tenants: []string{"a-"}}: "at the end",
		{Tenants: []string{""}}: "tenant", {Tenants: []string{strings.Repeat("a", 33)}}: "at most 32 characters",
	} {
		plan, err := f.Plan(*o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(plan) != 0 {
			t.Errorf("%+v: %v, %v", o, plan, err)
		}
	}
	if CheckTenant(strings.Repeat("a", 32)) != nil || CheckTenant("a-b") != nil {
		t.Error("a tenant of 32 characters, or with one dash, is refused")
	}
	// Parts that are gone.
	for _, c := range []struct {
		file string
		want Change
		n    int
	}{
		{f.ConfigFile(), Change{"file", "auth.conf", "write"}, 1},
		{f.userFile(Viewer), Change{"user", "viewer", "make, role viewer"}, 2},
		{f.accountFile(viewerAccount), Change{"account", viewerAccount, "make"}, 2},
	} {
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
		plan, err := f.Plan(Options{})
		if err != nil || len(plan) != c.n || plan[0] != c.want {
			t.Errorf("%s: %v, %v", c.file, plan, err)
		}
		if _, err := f.Apply(Options{}); err != nil {
			t.Error(err)
		}
	}
	all, err := f.Accounts()
	if err != nil || len(all) != 4 {
		t.Fatal(len(all), err)
	}
	var names []string
	conf, err := os.ReadFile(f.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range all {
		c, err := jwt.DecodeAccountClaims(text)
		if err != nil || !strings.Contains(string(conf), text) || !strings.Contains(string(conf), "# "+c.Name+"\n") ||
			c.Name == systemAccount != strings.Contains(string(conf), "system_account: "+c.Subject) {
			t.Error(c.Name, err)
		}
		if c.Name == clusterAccount != (c.Limits.DiskStorage == jwt.NoLimit) || c.Name == clusterAccount &&
			(c.Limits.MemoryStorage != jwt.NoLimit || c.Limits.Streams != jwt.NoLimit ||
				c.Limits.Consumer != jwt.NoLimit || c.Limits.MaxAckPending != jwt.NoLimit) {
			t.Errorf("%s: %+v", c.Name, c.Limits.JetStreamLimits)
		}
		if n := len(rolesOf(c.Name)); len(c.SigningKeys) != n {
			t.Errorf("%s has %d signing keys for %d roles", c.Name, len(c.SigningKeys), n)
		}
		names = append(names, c.Name)
	}
	if want := []string{systemAccount, clusterAccount, viewerAccount, "tenant-acme"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if sorted := sorted([]string{"tenant-b", "tenant-a", viewerAccount, systemAccount}); !slices.Equal(sorted,
		[]string{systemAccount, viewerAccount, "tenant-b", "tenant-a"}) {
		t.Error(sorted)
	}
	if !signedAt(0).IsZero() || !signedAt(7).Equal(time.Unix(7, 0)) {
		t.Error(signedAt(0), signedAt(7))
	}
	if tenantOf(tenantPrefix) != "" || tenantOf(tenantPrefix+"a") != "a" || tenantOf("cluster") != "" {
		t.Error("tenants of accounts")
	}
	if sameClaims(nil, jwt.NewAccountClaims("x")) || !sameClaims(nil, nil) {
		t.Error("no claims are the same as some")
	}
	bad := jwt.NewAccountClaims("x")
	bad.Name = "bad"
	bad.Imports.Add(&jwt.Import{Subject: "a..b", Type: jwt.Service})
	if err := check(bad); err == nil || !strings.Contains(err.Error(), "account bad is not valid") {
		t.Error(err)
	}
	have, want := jwt.UserPermissionLimits{}, jwt.UserPermissionLimits{}
	have.Pub.Allow, want.Pub.Allow = jwt.StringList{"a", "b"}, jwt.StringList{"b", "c"}
	have.Pub.Deny, want.Sub.Allow = jwt.StringList{"d"}, jwt.StringList{"e"}
	want.Resp = &jwt.ResponsePermission{MaxMsgs: 1}
	if got := differences(have, want); got != "+publish c, -publish a, -deny d, +subscribe e, answers" {
		t.Error(got)
	}
	have.Resp = &jwt.ResponsePermission{MaxMsgs: 1}
	if got := differences(have, have); got != "" {
		t.Error(got)
	}
	answers := func(n int) jwt.UserPermissionLimits {
		return jwt.UserPermissionLimits{Permissions: jwt.Permissions{Resp: &jwt.ResponsePermission{MaxMsgs: n}}}
	}
	if got := differences(answers(1), answers(2)); got != "answers" {
		t.Error(got)
	}
}
