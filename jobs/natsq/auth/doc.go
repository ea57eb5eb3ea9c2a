// Package auth makes and keeps the keys, accounts and users of a cluster, in one folder on the
// machine of an administrator. It talks to no server.
//
// # Keys and claims
//
// The operator signs accounts. Each account has one signing key per role, and the key of a role
// signs its users. The permissions of a role are part of the account, as the template of its
// signing key. So a change of Roles reaches all users as soon as the servers have the new claims of
// the account, and no user needs new credentials.
//
// Servers need the file of ConfigFile only, and clients one file of credentials. The keys stay in
// the folder: a process that has them is the administrator of the cluster. A lost key cannot be
// replaced without new credentials for all of its users, so a folder with a missing key is refused,
// and must be restored from a backup.
//
// # Accounts
//
// The streams of the queue are in the account of the cluster. Each tenant, and the viewers, have an
// account without streams, which reaches the cluster through exports and imports. The server adds
// the name of the tenant to the subject of a request, so a client cannot act for another tenant.
//
// # Order of the steps
//
// Plan reads the folder and returns the differences. Apply makes them, in this order: keys,
// operator, accounts, users, configuration. Each file is replaced as a whole, and existing keys and
// credentials never change, so Apply can be repeated after an error. The caller then hands the
// claims of Accounts to the running servers. A user has a record before it has credentials, so
// every user can be revoked.
package auth
