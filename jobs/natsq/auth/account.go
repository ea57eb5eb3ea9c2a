package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

func accounts(tenants []string) []string {
	all := []string{systemAccount, clusterAccount, viewerAccount}
	for _, t := range tenants {
		all = append(all, tenantPrefix+t)
	}
	return all
}

func rolesOf(account string) (all []Role) {
	for _, r := range Roles() {
		if accountOf(r, tenantOf(account)) == account {
			all = append(all, r)
		}
	}
	return all
}

// accountOf returns the account of the users of a role. tenant counts for roles of tenants only.
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

func roleKey(account, role string) string { return account + "." + role }

// gatewayOf returns the subject on which agents get the requests of a tenant. The server puts the
// name of the tenant into it. It takes the name from the account, which the operator has signed, so
// a client cannot choose it.
func gatewayOf(tenant string) jwt.Subject { return jwt.Subject("exo.tenant." + tenant + ".>") }

// gatewayLocal is the subject on which a client of a tenant publishes its requests.
const gatewayLocal = "exo.api.>"

// connectAccounts sets the exports and imports of an account.
//
// Tenants and viewers have accounts of their own, without JetStream, because permissions alone are
// not enough: the server publishes the answer to a request on the subject that the request names,
// and the messages of a consumer on the subject that its configuration names, whatever the client
// itself may publish. In an account without streams these messages reach no other client.
func connectAccounts(c *jwt.AccountClaims, account, cluster string) {
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
		for _, s := range asked {
			c.Exports = append(c.Exports, &jwt.Export{
				Name: s, Subject: jwt.Subject(s), Type: jwt.Service, ResponseType: jwt.ResponseTypeStream,
			})
		}
		for _, s := range told {
			c.Exports = append(c.Exports, &jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Stream})
		}
	case account == viewerAccount:
		for _, s := range reads {
			add(s, jwt.Service)
		}
		for _, s := range asked {
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

// wanted returns the claims that an account must have. They are new, except the revocations, which
// come from have; have may be nil.
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
	connectAccounts(c, account, cluster)
	for _, r := range rolesOf(account) {
		s := jwt.NewUserScope()
		s.Key, s.Role, s.Description, s.Template = roleKeys[r.Name], r.Name, r.Does, r.template()
		c.SigningKeys.AddScopedSigner(s)
	}
	return c
}

// sameClaims reports whether two claims have the same content. The time of the signature and the
// signer do not count.
func sameClaims(a, b *jwt.AccountClaims) bool {
	if a == nil || b == nil {
		return a == b
	}
	text := func(c *jwt.AccountClaims) string {
		copied := *c
		copied.Type, copied.Version = "", 0 // set by the signature, which also sorts exports and imports
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

// check returns an error for claims that a server would refuse. It finds an error before the claims
// are stored, because a server that gets them only logs it.
func check(c *jwt.AccountClaims) error {
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if vr.IsBlocking(true) {
		return invalid("account %s is not valid: %v", c.Name, vr.Errors())
	}
	return nil
}

// sign stores the claims of an account, signed by the operator.
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

// sorted sorts accounts in place: accounts of the cluster before accounts of tenants.
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
