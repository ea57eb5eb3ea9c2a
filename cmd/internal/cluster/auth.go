package cluster

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Auth returns exoswarm auth. Its commands work on the folder of an administrator and, except for
// revoke and push with --nats, reach no server. One process at a time may use the folder. Private
// keys stay in the folder: servers get public accounts, and users their credentials.
func Auth() *cobra.Command {
	add := cli.Verb{
		Use: "add NAME --role ROLE", Short: "Make a user and write its credentials",
		Flags: func(f *pflag.FlagSet) {
			f.String("role", "", "agent (for CPU agents), gpuagent, submitter, operator or viewer (required)")
			f.String("tenant", "", "tenant whose jobs a submitter submits and sees")
			f.Duration("expires", 0, "how long the credentials are valid, such as 720h; 0: for ever")
		},
		Do: inFolder(false, authAdd),
	}
	cmd := cli.Noun{Use: "auth", Short: "Make and revoke accounts and users of a cluster", Verbs: []cli.Verb{
		{
			Use:   "init --dir DIR",
			Short: "Make the keys, accounts and first users of a cluster, after showing what would be made",
			Long: `Compare a folder with the accounts that a cluster of these tenants needs, and show the
differences. --yes makes what is missing, and signs accounts again whose roles have changed.
Existing keys and credentials stay. Keep the folder with the administrator, away from the servers,
and back it up. Servers need auth.conf (exoswarm nats --auth, or an include of nats-server). Each
user needs the file of its name in creds.`,
			Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.String("operator", "", "name of the operator of a new folder (default exoswarm)")
				f.StringArray("tenant", nil, "tenant with an account of its own; may be given several times")
				f.Bool("yes", false, "make the changes")
			},
			// Only init makes a folder: another command in the wrong place must not leave keys there.
			Do: inFolder(true, authInit),
		},
		{Use: "list", Short: "List the users", Lists: true, Do: inFolder(false, authList)},
		{
			Use: "revoke NAME", Short: "Revoke a user: its login is refused, and its connections are closed",
			Long: `Revoke a user. With --nats the running servers close its connections at once. Without
--nats they do so after exoswarm auth push.`,
			Flags: authNATSFlags, Do: inFolder(false, authRevoke),
		},
		{
			Use: "push", Short: "Send the accounts to running servers, after init or revoke", Flags: authNATSFlags,
			Do: inFolder(
				false,
				func(cmd *cobra.Command, _ []string, f *auth.Folder) error { return pushAccounts(cmd, f) },
			),
		},
	}}.Command()
	cmd.AddCommand(cli.Noun{Use: "user", Short: "Make users", Verbs: []cli.Verb{add}}.Command())
	return cmd
}

// authNATSFlags adds the flags of a connection that logs in by the folder. They differ from
// cli.Flags: there is no login to choose. The account that pushes is made by init and has no other
// right.
func authNATSFlags(f *pflag.FlagSet) {
	f.String("nats", "", "URL of a server of the cluster, which informs the others")
	f.String("nats-ca", "", "file with the certificates, in PEM, that the server's must be signed by")
	f.String("nats-cert", "", "file with our certificate, for a server that asks for one")
	f.String("nats-key", "", "file with the key of --nats-cert")
	cli.PatienceFlag(f)
}

// inFolder returns the action of a function that needs the folder of --dir. It makes a missing
// folder if create is set, and closes the folder when the function has returned. A folder that
// another process has open is an error.
func inFolder(create bool, fn func(cmd *cobra.Command, args []string, f *auth.Folder) error) cli.Action {
	return cli.Action{
		Flags: func(f *pflag.FlagSet) { f.String("dir", "", "the folder with keys and accounts (required)") },
		Run: func(cmd *cobra.Command, args []string) error {
			dir, _ := cmd.Flags().GetString("dir")
			// There is no default: the folder decides whose keys sign.
			if dir == "" {
				return command.Usage("auth %s: --dir is missing: name the folder with keys and accounts", cmd.Name())
			}
			f, err := auth.Open(dir, create)
			if err != nil {
				return err
			}
			defer f.Close()
			return fn(cmd, args, f)
		},
	}
}

var authPlan = cli.Table[auth.Change]{
	Columns: []string{"WHAT", "NAME", "CHANGE"},
	Row:     func(c auth.Change) []any { return []any{c.What, c.Name, c.Do} },
}

// authInit prints the difference between the folder and the accounts that the flags ask for, one
// item for each change, and applies it with --yes. It never replaces keys or credentials.
//
// Fields of a change: what (operator, key, account, role, user or file), name, and do, the change
// in words. It never changes a server.
func authInit(cmd *cobra.Command, _ []string, f *auth.Folder) error {
	o := auth.Options{}
	o.Operator, _ = cmd.Flags().GetString("operator")
	o.Tenants, _ = cmd.Flags().GetStringArray("tenant")
	yes, _ := cmd.Flags().GetBool("yes")
	plan, err := f.Plan(o)
	if err != nil {
		return err
	}
	if confirmed, err := showPlan(cmd, yes, authPlan, plan); !confirmed {
		return err
	}
	if _, err := f.Apply(o); err != nil {
		return err
	}
	cmd.PrintErrf("%d changes applied; servers take %s, running ones are told by exoswarm auth push\n", len(plan),
		f.ConfigFile())
	return nil
}

// authAdd makes a user, and prints the path of the credentials file alone, for scripts. The servers
// need no change: they know the account that has signed the user. A name that the folder has or had
// is an error, since earlier credentials of the name may still be in use.
func authAdd(cmd *cobra.Command, args []string, f *auth.Folder) error {
	u := auth.User{Name: args[0]}
	u.Role, _ = cmd.Flags().GetString("role")
	u.Tenant, _ = cmd.Flags().GetString("tenant")
	expires, _ := cmd.Flags().GetDuration("expires")
	switch {
	case u.Role == "":
		return command.Usage("auth user add: --role is missing: use agent, gpuagent, submitter, " +
			"operator or viewer")
	case expires < 0:
		return command.Usage("auth user add: --expires %v: use a time to come, or 0 for ever", expires)
	case expires > 0:
		// The time comes from the clock of this machine; servers compare it with their clocks.
		u.Expires = time.Now().Add(expires)
	}
	file, err := f.AddUser(u)
	if err != nil {
		return err
	}
	cmd.Println(file)
	return nil
}

// authList prints the users of the folder, one item for each, an auth.User; the table adds
// whether the credentials are good, expired or revoked. Secrets are not part of it.
//
// Fields: name, role, tenant of a submitter, expires (RFC 3339, none for ever) and revoked.
func authList(cmd *cobra.Command, _ []string, f *auth.Folder) error {
	all, err := f.Users()
	if err != nil {
		return err
	}
	return cli.Table[auth.User]{
		Columns: []string{"USER", "ROLE", "TENANT", "EXPIRES", "STATE"},
		Row: func(u auth.User) []any {
			// A revocation counts more than an expiry. Servers know of it after the next push only, so
			// this is what the folder says and not what a running server does.
			state := "good"
			switch {
			case u.Revoked:
				state = "revoked"
			case !u.Expires.IsZero() && !u.Expires.After(time.Now()):
				state = "expired"
			}
			return []any{u.Name, u.Role, u.Tenant, cli.Time(u.Expires, "never"), state}
		},
	}.Print(cmd, all...)
}

// authRevoke revokes a user in the folder first, so that a later push has the revocation even
// when the servers cannot be reached now.
//
// Credentials that are expired need no revocation.
func authRevoke(cmd *cobra.Command, args []string, f *auth.Folder) error {
	if err := f.Revoke(args[0]); err != nil {
		return err
	}
	if url, _ := cmd.Flags().GetString("nats"); url == "" {
		cmd.PrintErrf("running servers do not know yet that user %s is revoked: exoswarm auth push --nats URL\n",
			args[0])
		return nil
	}
	return pushAccounts(cmd, f)
}

// pushAccounts sends the accounts of the folder to the server of --nats, which passes them to the
// other servers of its cluster. It logs in as the pusher of the folder. It may be repeated: a
// server that has the accounts already changes nothing. The folder must have the credentials of the
// user that may push, which init makes.
func pushAccounts(cmd *cobra.Command, f *auth.Folder) error {
	get := func(name string) string { v, _ := cmd.Flags().GetString(name); return v }
	if get("nats") == "" {
		return command.Usage("auth push: --nats is missing: name a server of the cluster")
	}
	claims, err := f.Accounts()
	if err != nil {
		return err
	}
	login := natsconn.Login{
		Credentials: f.CredsFile(auth.Pusher), CA: get("nats-ca"), Cert: get("nats-cert"),
		Key: get("nats-key"),
	}
	// The folder is complete by now, so a push that fails may be repeated.
	giveUp, err := cli.Patience(cmd)
	if err != nil {
		return err
	}
	if err := natsconn.PushAccounts(cmd.Context(),
		natsconn.Options{URL: get("nats"), Login: login, Name: "exoswarm auth", GiveUp: giveUp}, claims); err != nil {
		return err
	}
	cmd.PrintErrf("%d accounts handed over\n", len(claims))
	return nil
}
