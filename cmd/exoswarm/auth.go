package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// authCommand returns exoswarm auth. Its commands work on the folder of an administrator and,
// except for revoke and push with --nats, reach no server. One process at a time may use the
// folder. Private keys stay in the folder: servers get public accounts, and users their
// credentials.
func authCommand() *cobra.Command {
	// Commands on the folder alone: init, user add and list.
	initialise := &cobra.Command{
		Use:   "init --dir DIR",
		Short: "Make the keys, accounts and first users of a cluster, after showing what would be made",
		Long: `Compare a folder with the accounts that a cluster of these tenants needs, and show the
differences. --yes makes what is missing, and signs accounts again whose roles have changed.
Existing keys and credentials stay. Keep the folder with the administrator, away from the servers,
and back it up. Servers need auth.conf (exoswarm nats --auth, or an include of nats-server). Each
user needs the file of its name in creds.`,
		Args: cobra.NoArgs,
		// Only init makes a folder: another command in the wrong place must not leave keys there.
		RunE: inFolder(true, authInit),
	}
	f := initialise.Flags()
	f.String("operator", "", "name of the operator of a new folder (default exoswarm)")
	f.StringArray("tenant", nil, "tenant with an account of its own; may be given several times")
	f.Bool("yes", false, "make the changes")
	command.ListFlag(f)

	add := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "Make a user and write its credentials", Args: cobra.ExactArgs(1),
		RunE: inFolder(false, authAdd),
	}
	f = add.Flags()
	f.String("role", "", "agent (for CPU agents), gpuagent, submitter, operator or viewer (required)")
	f.String("tenant", "", "tenant whose jobs a submitter submits and sees")
	f.Duration("expires", 0, "how long the credentials are valid, such as 720h; 0: for ever")

	list := &cobra.Command{Use: "list", Short: "List the users", Args: cobra.NoArgs, RunE: inFolder(false, authList)}
	command.ListFlag(list.Flags())
	// Commands that can reach servers too.
	revoke := &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a user: its login is refused, and its connections are closed",
		Args: cobra.ExactArgs(1),
		Long: `Revoke a user. With --nats the running servers close its connections at once. Without
--nats they do so after exoswarm auth push.`,
		RunE: inFolder(false, authRevoke),
	}
	push := &cobra.Command{
		Use: "push", Short: "Send the accounts to running servers, after init or revoke", Args: cobra.NoArgs,
		RunE: inFolder(false, func(cmd *cobra.Command, _ []string, f *auth.Folder) error {
			return pushAccounts(cmd, f)
		}),
	}
	for _, c := range []*cobra.Command{revoke, push} {
		authNATSFlags(c.Flags())
	}
	all := []*cobra.Command{initialise, list, revoke, push}
	for _, c := range append(all, add) {
		c.Flags().String("dir", "", "the folder with keys and accounts (required)")
	}
	return command.Group("auth", "Make and revoke accounts and users of a cluster",
		append(all, command.Group("user", "Make users", add))...)
}

// authNATSFlags adds the flags of a connection that logs in by the folder. They differ from
// connect.Flags: there is no login to choose. The account that pushes is made by init and has no other
// right.
func authNATSFlags(f *pflag.FlagSet) {
	f.String("nats", "", "URL of a server of the cluster, which informs the others")
	f.String("nats-ca", "", "file with the certificates, in PEM, that the server's must be signed by")
	f.String("nats-cert", "", "file with our certificate, for a server that asks for one")
	f.String("nats-key", "", "file with the key of --nats-cert")
	connect.PatienceFlag(f)
}

// inFolder makes a command's RunE of a function that needs the folder of --dir. It makes a missing
// folder if create is set, and closes the folder when the function has returned. A folder that
// another process has open is an error.
func inFolder(create bool, fn func(cmd *cobra.Command, args []string, f *auth.Folder) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
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
	}
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
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "WHAT", "NAME", "CHANGE")
	if err != nil {
		return err
	}
	for _, ch := range plan {
		if err := p.Item(ch, ch.What, ch.Name, ch.Do); err != nil {
			return err
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	switch {
	// The lists of init and of auth init have the same meaning: nothing to do is a success.
	case len(plan) == 0:
		cmd.PrintErrln("nothing to change")
		return nil
	case !yes:
		cmd.PrintErrln("nothing was changed: apply it with --yes")
		return nil
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
		// The time is that of this machine; servers compare it with theirs.
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
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "USER", "ROLE", "TENANT", "EXPIRES", "STATE")
	if err != nil {
		return err
	}
	for _, u := range all {
		// A revocation counts more than an expiry. Servers know of it after the next push only, so
		// this is what the folder says and not what a running server does.
		expires, state := "never", "good"
		if !u.Expires.IsZero() {
			expires = u.Expires.Format(time.RFC3339)
			if !u.Expires.After(time.Now()) {
				state = "expired"
			}
		}
		if u.Revoked {
			state = "revoked"
		}
		if err := p.Item(u, u.Name, u.Role, u.Tenant, expires, state); err != nil {
			return err
		}
	}
	return p.End()
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
// other servers of its cluster. The login is that of the folder. It may be repeated: a server that
// has the accounts already changes nothing. The folder must have the credentials of the user that
// may push, which init makes.
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
	giveUp, err := connect.Patience(cmd)
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
