package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

func authCommand() *cobra.Command {
	initialise := &cobra.Command{
		Use:   "init --dir DIR",
		Short: "Make the keys, accounts and first users of a cluster, after showing what would be made",
		Long: `Compare a folder with what a cluster of these tenants needs and show the differences.
With --yes what is missing is made, and accounts whose roles have changed are signed anew. Keys and
credentials that are there stay as they are. The folder is the administrator's: keep it off the
servers, and back it up. Servers need auth.conf (exoswarm nats --auth, or an include of
nats-server), users the file of theirs below creds.`,
		Args: cobra.NoArgs,
		RunE: inFolder(true, authInit),
	}
	f := initialise.Flags()
	f.String("operator", "", "name of the operator of a new folder (default exoswarm)")
	f.StringArray("tenant", nil, "tenant that gets an account of its own; may be given several times")
	f.Bool("yes", false, "make it")
	listing.Flag(f)

	add := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "Make a user and write its credentials", Args: cobra.ExactArgs(1),
		RunE: inFolder(false, authAdd),
	}
	f = add.Flags()
	f.String("role", "", "agent, submitter, operator or viewer (required)")
	f.String("tenant", "", "whose jobs a submitter submits and sees")
	f.Duration("expires", 0, "how long the credentials are good, such as 720h; 0 for ever")

	list := &cobra.Command{Use: "list", Short: "List the users", Args: cobra.NoArgs, RunE: inFolder(false, authList)}
	listing.Flag(list.Flags())
	revoke := &cobra.Command{
		Use: "revoke NAME", Short: "End a user: it is let in no more, and its connections are closed",
		Args: cobra.ExactArgs(1),
		Long: `End a user. With --nats the running servers hear of it at once and close its
connections. Without, nothing happens to them until the accounts are pushed (exoswarm auth push).`,
		RunE: inFolder(false, authRevoke),
	}
	push := &cobra.Command{
		Use: "push", Short: "Hand the accounts to running servers, after init or revoke", Args: cobra.NoArgs,
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
	return command.Group("auth", "Make accounts, roles and users for a cluster, and end them",
		append(all, command.Group("user", "Make users", add))...)
}

// authNATSFlags adds the flags of a connection that logs in by the folder.
func authNATSFlags(f *pflag.FlagSet) {
	f.String("nats", "", "URL of a server of the cluster; the others hear of it by themselves")
	f.String("nats-ca", "", "file with the certificates, in PEM, that the server's must be signed by")
	f.String("nats-cert", "", "file with our certificate, for a server that asks for one")
	f.String("nats-key", "", "file with the key of --nats-cert")
	patienceFlag(f)
}

// inFolder makes a command's RunE of a function that needs the folder.
func inFolder(create bool, fn func(cmd *cobra.Command, args []string, f *auth.Folder) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		dir, _ := cmd.Flags().GetString("dir")
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

func authInit(cmd *cobra.Command, _ []string, f *auth.Folder) error {
	o := auth.Options{}
	o.Operator, _ = cmd.Flags().GetString("operator")
	o.Tenants, _ = cmd.Flags().GetStringArray("tenant")
	yes, _ := cmd.Flags().GetBool("yes")
	plan, err := f.Plan(o)
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "WHAT", "NAME", "CHANGE")
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

func authAdd(cmd *cobra.Command, args []string, f *auth.Folder) error {
	u := auth.User{Name: args[0]}
	u.Role, _ = cmd.Flags().GetString("role")
	u.Tenant, _ = cmd.Flags().GetString("tenant")
	expires, _ := cmd.Flags().GetDuration("expires")
	switch {
	case u.Role == "":
		return command.Usage("auth user add: --role is missing: use agent, submitter, operator or viewer")
	case expires < 0:
		return command.Usage("auth user add: --expires %v: use a time to come, or 0 for ever", expires)
	case expires > 0:
		u.Expires = time.Now().Add(expires)
	}
	file, err := f.AddUser(u)
	if err != nil {
		return err
	}
	cmd.Println(file)
	return nil
}

func authList(cmd *cobra.Command, _ []string, f *auth.Folder) error {
	all, err := f.Users()
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "USER", "ROLE", "TENANT", "EXPIRES", "STATE")
	if err != nil {
		return err
	}
	for _, u := range all {
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
	giveUp, err := patience(cmd)
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
