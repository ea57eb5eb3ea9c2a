package command

import "fmt"

// exitStatus ends a command with a status of its own.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Exit returns an error that ends the command with a status and writes nothing: the command has
// written what there is to say.
func Exit(status int) error { return exitStatus(status) }
