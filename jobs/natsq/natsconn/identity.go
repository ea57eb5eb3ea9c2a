package natsconn

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// identity is what credentials say of their user. It serves error texts and the inbox of the user.
// The server decides what the user may do.
type identity struct {
	name, role, tenant string // empty when the login is not one of exoswarm auth
	expires            time.Time
	// certificate reads the client certificate that the next handshake shows; nil without one.
	certificate nats.TLSCertHandler
}

// ends returns when the login is not valid any more: at the end of the credentials or of the client
// certificate, the earlier one. It is zero for a login without an end. A certificate is read at
// each call, because its file may be replaced while the connection lasts.
func (i identity) ends() time.Time {
	if i.certificate == nil {
		return i.expires
	}
	c, err := i.certificate()
	if err != nil || c.Leaf == nil {
		return i.expires
	}
	if end := c.Leaf.NotAfter; i.expires.IsZero() || end.Before(i.expires) {
		return end
	}
	return i.expires
}

// identify reads credentials that exoswarm auth has made, and has the client take the one inbox
// that their user may listen at. It is an option of the connection, so that it sees the credentials
// of a context too.
func identify(who *identity) nats.Option {
	return func(o *nats.Options) error {
		who.certificate = o.TLSCertCB
		if o.UserJWT == nil {
			return nil
		}
		text, err := o.UserJWT()
		if err != nil {
			return jobs.Errorf(jobs.CodeInvalid, "log in to NATS: credentials: %v", err)
		}
		c, err := jwt.DecodeUserClaims(text)
		if err != nil {
			return jobs.Errorf(jobs.CodeInvalid, "log in to NATS: credentials: %v", err)
		}
		me := identity{certificate: o.TLSCertCB}
		if c.Expires > 0 {
			me.expires = time.Unix(c.Expires, 0)
		}
		for _, t := range c.Tags {
			if v, ok := strings.CutPrefix(t, "role:"); ok {
				me.role = v
			}
			if v, ok := strings.CutPrefix(t, "tenant:"); ok {
				me.tenant = v
			}
		}
		if me.role == "" || jobs.CheckID("user", c.Name) != nil {
			who.expires = me.expires
			return nil // somebody else's
		}
		me.name = c.Name
		if o.InboxPrefix == "" {
			o.InboxPrefix = strings.TrimSuffix(nats.InboxPrefix, ".") + "." + c.Name
		}
		*who = me
		return nil
	}
}

func (i identity) String() string {
	switch {
	case i.name == "":
		return "this login"
	case i.tenant != "":
		return fmt.Sprintf("user %s (%s of tenant %s)", i.name, i.role, i.tenant)
	}
	return fmt.Sprintf("user %s (%s)", i.name, i.role)
}

// cure returns how the user gets the missing permission.
func (i identity) cure() string {
	if i.name == "" {
		return "use one with more rights"
	}
	return "use a login of another role (exoswarm auth list; docs/roles.md says who may do what)"
}

// renewal returns how the user can log in again.
func (i identity) renewal() string {
	switch {
	case i.name == "":
		return "check the credentials, nkey, user or token"
	case !i.expires.IsZero() && time.Now().After(i.expires):
		return fmt.Sprintf("the credentials expired at %v: ask for new ones (exoswarm auth user add)",
			i.expires.UTC().Format(time.RFC3339))
	}
	return "it was revoked, or is unknown there: ask for new credentials (exoswarm auth user add)"
}
