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

	"github.com/exoswarm/exoswarm/jobs"
)

// User is a login with one role.
type User struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	Tenant string `json:"tenant,omitempty"` // for roles of tenants only
	// Expires is when its credentials end, in whole seconds; zero means never.
	Expires time.Time `json:"expires,omitzero"`
	Revoked bool      `json:"revoked,omitempty"`
}

// Tags in the claims of a user. A client reads them for its messages; its permissions do not depend
// on them.
const (
	tagRole   = "role:"
	tagTenant = "tenant:"
)

// AddUser makes a user and its credentials, and returns the path of the credentials. The name must
// be a valid id that no user of the folder has or had.
func (f *Folder) AddUser(u User) (creds string, err error) {
	if err := jobs.CheckID("user", u.Name); err != nil {
		return "", err
	}
	r, err := RoleNamed(u.Role)
	if err != nil {
		return "", err
	}
	switch {
	case r.Account == tenantPrefix && u.Tenant == "":
		return "", invalid("a %s belongs to a tenant: name it (--tenant)", r.Name)
	case r.Account != tenantPrefix && u.Tenant != "":
		return "", invalid("a %s belongs to no tenant: leave --tenant out, or use the role %s", r.Name, Submitter)
	case !u.Expires.IsZero() && !u.Expires.After(time.Now()):
		return "", invalid("user %s would have expired at %v", u.Name, u.Expires.Format(time.RFC3339))
	}
	if _, err := os.Stat(f.userFile(u.Name)); err == nil {
		return "", invalid("user %s exists already: choose another name; names of revoked users are not used again",
			u.Name)
	}
	c, err := f.accountClaims(accountOf(r, u.Tenant))
	if err != nil {
		return "", err
	}
	if c == nil {
		return "", invalid("there is no account %s: make it first (exoswarm auth init --tenant %s --yes)",
			accountOf(r, u.Tenant), u.Tenant)
	}
	return f.CredsFile(u.Name), f.makeUser(u)
}

// makeUser makes the key, the claims and the credentials of a user. The caller has checked u.
func (f *Folder) makeUser(u User) error {
	r, err := RoleNamed(u.Role)
	if err != nil {
		return err
	}
	account := accountOf(r, u.Tenant)
	c, err := f.accountClaims(account)
	if err != nil {
		return err
	}
	signer, err := f.mustKey(roleKey(account, r.Name))
	if err != nil {
		return err
	}
	k, err := nkeys.CreateUser()
	if err != nil {
		return fmt.Errorf("auth: make the key of user %s: %w", u.Name, err)
	}
	public, err := k.PublicKey()
	if err != nil {
		return fmt.Errorf("auth: make the key of user %s: %w", u.Name, err)
	}
	seed, err := k.Seed()
	if err != nil {
		return fmt.Errorf("auth: make the key of user %s: %w", u.Name, err)
	}
	claims := jwt.NewUserClaims(public)
	claims.SetScoped(true) // the account has its permissions
	claims.Name, claims.IssuerAccount = u.Name, c.Subject
	claims.Tags = jwt.TagList{tagRole + u.Role} // not by Add, which makes all letters small
	if u.Tenant != "" {
		claims.Tags = append(claims.Tags, tagTenant+u.Tenant)
	}
	if !u.Expires.IsZero() {
		claims.Expires = u.Expires.Unix()
	}
	text, err := claims.Encode(signer)
	if err != nil {
		return invalid("sign user %s: %v", u.Name, err)
	}
	creds, err := jwt.FormatUserConfig(text, seed)
	if err != nil {
		return invalid("credentials of user %s: %v", u.Name, err)
	}
	// The record comes before the credentials, because credentials without it could not be revoked.
	if err := write(f.userFile(u.Name), []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return write(f.CredsFile(u.Name), creds, 0o600)
}

// Users returns all users in the order of role, tenant and name, whether or not the folder still
// has their credentials.
func (f *Folder) Users() ([]User, error) {
	names, err := f.names("users", ".jwt")
	if err != nil {
		return nil, err
	}
	var all []User
	for _, n := range names {
		u, _, _, err := f.user(n)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b User) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Tenant, b.Tenant),
			strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// user reads a user, its claims and its account. It fails with jobs.ErrNotFound if there is no such
// user.
func (f *Folder) user(name string) (u User, c *jwt.UserClaims, account *jwt.AccountClaims, err error) {
	if err := jobs.CheckID("user", name); err != nil {
		return u, nil, nil, err
	}
	text, err := readToken(f.userFile(name))
	if err == nil && text == "" {
		err = fmt.Errorf("auth: user %s: %w: exoswarm auth list shows all", name, jobs.ErrNotFound)
	}
	if err != nil {
		return u, nil, nil, err
	}
	if c, err = jwt.DecodeUserClaims(text); err != nil {
		return u, nil, nil, invalid("%s: %v: put it back from a backup", f.userFile(name), err)
	}
	u = User{Name: c.Name, Expires: signedAt(c.Expires)}
	for _, t := range c.Tags {
		if v, ok := strings.CutPrefix(t, tagRole); ok {
			u.Role = v
		}
		if v, ok := strings.CutPrefix(t, tagTenant); ok {
			u.Tenant = v
		}
	}
	r, err := RoleNamed(u.Role)
	if err != nil {
		return u, nil, nil, err
	}
	if account, err = f.accountClaims(accountOf(r, u.Tenant)); err != nil {
		return u, nil, nil, err
	}
	if account == nil {
		return u, nil, nil, invalid("user %s: its account is missing in %s: put it back from a backup", name, f.dir)
	}
	u.Revoked = account.IsClaimRevoked(c)
	return u, c, account, nil
}

// Revoke revokes a user for good: its name is not used again, and no call undoes it. Servers with
// the new claims of its account end its connections and refuse new ones, so the caller must hand
// the claims to running servers (Accounts). The credentials stay in the folder without effect,
// because an agent that cannot read them would not learn that it is revoked. A second call
// succeeds.
func (f *Folder) Revoke(name string) error {
	u, c, account, err := f.user(name)
	if err != nil {
		return err
	}
	if !u.Revoked {
		operator, err := f.mustKey(operatorKey)
		if err != nil {
			return err
		}
		account.Revoke(c.Subject)
		if err := f.sign(account, operator); err != nil {
			return err
		}
	}
	return f.writeConfig()
}
