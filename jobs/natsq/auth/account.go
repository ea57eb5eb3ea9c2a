package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// accounts lists the accounts that a cluster with these tenants has.
func accounts(tenants []string) []string {
	all := []string{systemAccount, clusterAccount, viewerAccount}
	for _, t := range tenants {
		all = append(all, tenantPrefix+t)
	}
	return all
}

// rolesOf lists the roles of an account.
func rolesOf(account string) (all []Role) {
	for _, r := range Roles() {
		if accountOf(r, tenantOf(account)) == account {
			all = append(all, r)
		}
	}
	return all
}

// accountOf is the account of a role's users.
func accountOf(r Role, tenant string) string {
	if r.Account == tenantPrefix {
		return tenantPrefix + tenant
	}
	return r.Account
}

func tenantOf(account string) string {
	if len(account) > len(tenantPrefix) && account[:len(tenantPrefix)] == tenantPrefix {
		return account[len(tenantPrefix):]
	}
	return ""
}

// roleKey is the name of the key that signs the users of a role.
func roleKey(account, role string) string { return account + "." + role }

// gatewayOf is where the agents hear the requests of a tenant. The name in it is put there by the
// server, from the tenant's account, which the operator's key has signed: a client cannot choose
// it.
func gatewayOf(tenant string) jwt.Subject { return jwt.Subject("exo.tenant." + tenant + ".>") }

const gatewayLocal = "exo.api.>"

// ways fills in what an account lets others ask and hear, and what it asks and hears of others.
//
// Tenants and viewers have accounts of their own, without JetStream, and not only permissions: the
// server publishes the answer to a request wherever the request says, and what a consumer hands out
// wherever its configuration says, whatever its client may publish itself. In an account without
// streams that reaches nobody.
func ways(c *jwt.AccountClaims, account, cluster string) {
	c.Exports, c.Imports = nil, nil
	add := func(subject string, kind jwt.ExportType) {
		c.Imports = append(c.Imports, &jwt.Import{
			Name: subject, Account: cluster, Subject: jwt.Subject(subject),
			Type: kind,
		})
	}
	switch {
	case account == clusterAccount:
		c.Exports = append(c.Exports, &jwt.Export{
			Name: "gateway", Subject: "exo.tenant.*.>", Type: jwt.Service,
			ResponseType: jwt.ResponseTypeSingleton,
		})
		for _, s := range reads {
			c.Exports = append(c.Exports, &jwt.Export{
				Name: s, Subject: jwt.Subject(s), Type: jwt.Service,
				ResponseType: jwt.ResponseTypeSingleton,
			})
		}
		for _, s := range told {
			c.Exports = append(c.Exports, &jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Stream})
		}
	case account == viewerAccount:
		for _, s := range reads {
			add(s, jwt.Service)
		}
		for _, s := range told {
			add(s, jwt.Stream)
		}
	case tenantOf(account) != "":
		c.Imports = append(c.Imports, &jwt.Import{
			Name: "gateway", Account: cluster,
			Subject: gatewayOf(tenantOf(account)), LocalSubject: gatewayLocal, Type: jwt.Service,
		})
	}
}

// wanted is an account as it should be: have, with everything in it that this package decides.
// Revocations stay.
func wanted(have *jwt.AccountClaims, account, key, cluster string, roleKeys map[string]string) *jwt.AccountClaims {
	c := jwt.NewAccountClaims(key)
	if have != nil {
		c.Revocations = have.Revocations
	}
	c.Name = account
	if account == clusterAccount {
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
			MaxAckPending: jwt.NoLimit,
		}
	}
	ways(c, account, cluster)
	for _, r := range rolesOf(account) {
		s := jwt.NewUserScope()
		s.Key, s.Role, s.Description, s.Template = roleKeys[r.Name], r.Name, r.Does, r.template()
		c.SigningKeys.AddScopedSigner(s)
	}
	return c
}

// sameClaims says whether two accounts mean the same; when they were signed and by whom does not
// count.
func sameClaims(a, b *jwt.AccountClaims) bool {
	if a == nil || b == nil {
		return a == b
	}
	text := func(c *jwt.AccountClaims) string {
		copied := *c
		copied.Type, copied.Version = "", 0 // filled in when it is signed, and these are sorted then
		copied.Exports, copied.Imports = slices.Clone(c.Exports), slices.Clone(c.Imports)
		slices.SortFunc(copied.Exports, func(a, b *jwt.Export) int {
			return strings.Compare(string(a.Subject), string(b.Subject))
		})
		slices.SortFunc(copied.Imports, func(a, b *jwt.Import) int {
			return strings.Compare(string(a.Subject), string(b.Subject))
		})
		data, err := json.Marshal(copied.Account)
		if err != nil {
			return err.Error()
		}
		return c.Name + string(data)
	}
	return text(a) == text(b)
}

// check refuses an account that a server would.
func check(c *jwt.AccountClaims) error {
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if vr.IsBlocking(true) {
		return invalid("account %s is not valid: %v", c.Name, vr.Errors())
	}
	return nil
}

// sign stores an account, signed by the operator.
func (f *Folder) sign(c *jwt.AccountClaims, operator nkeys.KeyPair) error {
	if err := check(c); err != nil {
		return err
	}
	text, err := c.Encode(operator)
	if err != nil {
		return invalid("sign account %s: %v", c.Name, err)
	}
	return write(f.accountFile(c.Name), []byte(text+"\n"), 0o600)
}

// sorted puts the accounts in the order in which they are listed: those of the cluster first.
func sorted(names []string) []string {
	first := accounts(nil)
	slices.SortStableFunc(names, func(a, b string) int {
		at := func(n string) int {
			if i := slices.Index(first, n); i >= 0 {
				return i
			}
			return len(first)
		}
		return at(a) - at(b)
	})
	return names
}
