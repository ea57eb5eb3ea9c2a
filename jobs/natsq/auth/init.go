package auth

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// Options describe the content that a folder must have. Other content of the folder stays.
type Options struct {
	// Operator is the name of the operator of a new folder; empty means "exoswarm".
	Operator string
	// Tenants are the tenants that get an account each, if they have none.
	Tenants []string
}

// Change is a difference between a folder and its Options. Each change must reach the running
// servers, unless it is of users or files, see Folder.Accounts.
type Change struct {
	What string `json:"what"` // operator, key, account, role, user or file
	Name string `json:"name"`
	Do   string `json:"do"` // make, or a description of the change
}

const operatorKey = "operator"

// state is the content of a folder, with the tenants that the Options add.
type state struct {
	operator string                        // the signed claims; "" if there are none
	tenants  []string                      // sorted
	keys     map[string]string             // public keys by name; "" if a key is missing
	accounts map[string]*jwt.AccountClaims // nil if an account is missing
}

func keysOf(tenants []string) []string {
	all := []string{operatorKey}
	for _, a := range accounts(tenants) {
		all = append(all, a)
		for _, r := range rolesOf(a) {
			all = append(all, roleKey(a, r.Name))
		}
	}
	return all
}

func (f *Folder) read(o Options) (*state, error) {
	s := &state{keys: map[string]string{}, accounts: map[string]*jwt.AccountClaims{}}
	var err error
	if s.operator, err = readToken(f.operatorFile()); err != nil {
		return nil, err
	}
	if s.operator != "" {
		c, err := jwt.DecodeOperatorClaims(s.operator)
		if err != nil {
			return nil, invalid("%s: %v: put it back from a backup", f.operatorFile(), err)
		}
		if o.Operator != "" && o.Operator != c.Name {
			return nil, invalid("%s belongs to operator %q: leave --operator out, or choose another folder", f.dir,
				c.Name)
		}
	}
	if s.tenants, err = f.Tenants(); err != nil {
		return nil, err
	}
	s.tenants = slices.Compact(slices.Sorted(slices.Values(append(s.tenants, o.Tenants...))))
	for _, t := range o.Tenants {
		if err := CheckTenant(t); err != nil {
			return nil, err
		}
	}
	for _, name := range keysOf(s.tenants) {
		k, err := f.key(name)
		if err != nil {
			return nil, err
		}
		if k == nil {
			continue
		}
		if s.keys[name], err = k.PublicKey(); err != nil {
			return nil, invalid("%s: %v", f.keyFile(name), err)
		}
	}
	for _, a := range accounts(s.tenants) {
		if s.accounts[a], err = f.accountClaims(a); err != nil {
			return nil, err
		}
	}
	return s, s.check(f)
}

// check returns an error if a part of the folder is missing. A new part would not match the claims
// and credentials that servers and users have.
func (s *state) check(f *Folder) error {
	lost := func(name string) error {
		return invalid("the key %s is missing: put it back from a backup; a new one would need new credentials for "+
			"everybody", f.keyFile(name))
	}
	if s.operator != "" && s.keys[operatorKey] == "" {
		return lost(operatorKey)
	}
	for name, c := range s.accounts {
		if c == nil {
			continue
		}
		if s.operator == "" {
			return invalid("%s is missing: put it back from a backup", f.operatorFile())
		}
		if c.Subject != s.keys[name] {
			return lost(name)
		}
		for _, scope := range c.SigningKeys {
			u, ok := scope.(*jwt.UserScope)
			if !ok {
				continue
			}
			if key := roleKey(name, u.Role); u.Key != s.keys[key] &&
				slices.ContainsFunc(rolesOf(name), func(r Role) bool { return r.Name == u.Role }) {
				return lost(key)
			}
		}
	}
	return nil
}

// Plan returns the changes that Apply would make. It changes nothing.
func (f *Folder) Plan(o Options) ([]Change, error) {
	s, err := f.read(o)
	if err != nil {
		return nil, err
	}
	var all []Change
	for _, name := range keysOf(s.tenants) {
		if s.keys[name] == "" {
			all = append(all, Change{"key", name, "make"})
		}
	}
	if s.operator == "" {
		all = append(all, Change{"operator", cmp.Or(o.Operator, "exoswarm"), "make"})
	}
	for _, name := range accounts(s.tenants) {
		have := s.accounts[name]
		if have == nil {
			all = append(all, Change{"account", name, "make"})
			continue
		}
		want := s.want(name)
		if sameClaims(have, want) {
			continue
		}
		n := len(all)
		for _, r := range rolesOf(name) {
			before, _ := have.SigningKeys.GetScope(s.keys[roleKey(name, r.Name)])
			after, _ := want.SigningKeys.GetScope(s.keys[roleKey(name, r.Name)])
			if b, ok := before.(*jwt.UserScope); ok {
				if diff := differences(b.Template, after.(*jwt.UserScope).Template); diff != "" {
					all = append(all, Change{"role", roleKey(name, r.Name), diff})
				}
			}
		}
		if len(all) == n {
			all = append(all, Change{"account", name, "sign anew"})
		}
	}
	for _, u := range firstUsers(s.tenants) {
		if text, err := readToken(f.userFile(u.Name)); err != nil {
			return nil, err
		} else if text == "" {
			all = append(all, Change{"user", u.Name, "make, role " + u.Role})
		}
	}
	if text, err := readToken(f.ConfigFile()); err != nil {
		return nil, err
	} else if text == "" || len(all) > 0 {
		all = append(all, Change{"file", ConfigName, "write"})
	}
	return all, nil
}

func (s *state) want(name string) *jwt.AccountClaims {
	roleKeys := map[string]string{}
	for _, r := range rolesOf(name) {
		roleKeys[r.Name] = s.keys[roleKey(name, r.Name)]
	}
	return wanted(s.accounts[name], name, s.keys[name], s.keys[clusterAccount], roleKeys)
}

// differences describes the subjects that a role gains (+) and loses (-), for people. It is empty
// if the permissions are the same.
func differences(have, want jwt.UserPermissionLimits) string {
	var all []string
	list := func(what string, h, w jwt.StringList) {
		for _, s := range w {
			if !slices.Contains(h, s) {
				all = append(all, "+"+what+" "+s)
			}
		}
		for _, s := range h {
			if !slices.Contains(w, s) {
				all = append(all, "-"+what+" "+s)
			}
		}
	}
	list("publish", have.Pub.Allow, want.Pub.Allow)
	list("deny", have.Pub.Deny, want.Pub.Deny)
	list("subscribe", have.Sub.Allow, want.Sub.Allow)
	if h, w := fmt.Sprint(have.Resp), fmt.Sprint(want.Resp); h != w {
		if have.Resp == nil || want.Resp == nil || *have.Resp != *want.Resp {
			all = append(all, "answers")
		}
	}
	return strings.Join(all, ", ")
}

// firstUsers returns the users of every folder: one per role of the cluster, and one submitter per
// tenant. Their credentials do not expire.
func firstUsers(tenants []string) []User {
	all := []User{
		{Name: Pusher, Role: Pusher},
		{Name: Operator, Role: Operator},
		{Name: Agent, Role: Agent},
		{Name: GPUAgent, Role: GPUAgent},
		{Name: Viewer, Role: Viewer},
	}
	for _, t := range tenants {
		all = append(all, User{Name: t + "-" + Submitter, Role: Submitter, Tenant: t})
	}
	return all
}

// Apply makes the missing parts, signs changed accounts again, and returns the changes. Existing
// keys and credentials stay as they are. After an error the changes so far stay, and another call
// makes the rest.
func (f *Folder) Apply(o Options) ([]Change, error) {
	plan, err := f.Plan(o)
	if err != nil {
		return nil, err
	}
	s, err := f.read(o)
	if err != nil {
		return nil, err
	}
	for _, name := range keysOf(s.tenants) {
		if s.keys[name] != "" {
			continue
		}
		prefix := nkeys.PrefixByteAccount
		if name == operatorKey {
			prefix = nkeys.PrefixByteOperator
		}
		k, err := f.newKey(name, prefix)
		if err != nil {
			return nil, err
		}
		if s.keys[name], err = k.PublicKey(); err != nil {
			return nil, invalid("key %s: %v", name, err)
		}
	}
	operator, err := f.mustKey(operatorKey)
	if err != nil {
		return nil, err
	}
	if s.operator == "" {
		c := jwt.NewOperatorClaims(s.keys[operatorKey])
		c.Name, c.SystemAccount = cmp.Or(o.Operator, "exoswarm"), s.keys[systemAccount]
		text, err := c.Encode(operator)
		if err != nil {
			return nil, invalid("sign operator %s: %v", c.Name, err)
		}
		if err := write(f.operatorFile(), []byte(text+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	for _, name := range accounts(s.tenants) {
		if want := s.want(name); !sameClaims(s.accounts[name], want) {
			if err := f.sign(want, operator); err != nil {
				return nil, err
			}
		}
	}
	for _, u := range firstUsers(s.tenants) {
		if _, err := os.Stat(f.userFile(u.Name)); err == nil {
			continue
		}
		if err := f.makeUser(u); err != nil {
			return nil, err
		}
	}
	return plan, f.writeConfig()
}

// Accounts returns the signed claims of all accounts, for running servers. They are not secret.
func (f *Folder) Accounts() (all []string, err error) {
	names, err := f.names("accounts", ".jwt")
	if err != nil {
		return nil, err
	}
	for _, n := range sorted(names) {
		text, err := readToken(f.accountFile(n))
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// writeConfig writes the file that the configuration of a server includes. It has no secret.
func (f *Folder) writeConfig() error {
	operator, err := readToken(f.operatorFile())
	if err != nil {
		return err
	}
	all, err := f.Accounts()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Made by `exoswarm auth`: who may connect to the servers of a cluster, and as what. It holds no " +
		"secret. A server takes an account\n" +
		"# from here only when it has none that was signed later, so a restart with an old copy of this file takes " +
		"nothing back.\n")
	fmt.Fprintf(&b, "operator: %s\n", operator)
	var preload []string
	for _, text := range all {
		c, err := jwt.DecodeAccountClaims(text)
		if err != nil {
			return invalid("account: %v", err)
		}
		if c.Name == systemAccount {
			fmt.Fprintf(&b, "system_account: %s\n", c.Subject)
		}
		if c.Name == clusterAccount {
			// Leaf nodes without streams pass requests to the streams on as they are.
			fmt.Fprintf(&b, "default_js_domain { %s: \"\" }\n", c.Subject)
		}
		preload = append(preload, fmt.Sprintf("  # %s\n  %s: %s\n", c.Name, c.Subject, text))
	}
	fmt.Fprintf(&b, "resolver_preload {\n%s}\n", strings.Join(preload, ""))
	return write(f.ConfigFile(), []byte(b.String()), 0o644)
}

// signedAt returns a time of claims, which is in seconds since 1970; 0 is the zero time.
func signedAt(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0).UTC()
}
