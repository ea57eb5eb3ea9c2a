package generation

import "errors"

// Errors of requests and streams. Each is wrapped where there is more to say.
var (
	// ErrTooLong: the prompt does not leave room for a token in the context of the swarm.
	ErrTooLong = errors.New("the prompt is too long")
	// ErrBusy: the conversation is being answered.
	ErrBusy = errors.New("the conversation is being answered")
	// ErrFull: all agents are in use.
	ErrFull = errors.New("all agents are in use")
	// ErrResume: the stream that shall be continued is not known.
	ErrResume = errors.New("there is no such stream to continue")
	// ErrTaken: another request or client has the conversation now.
	ErrTaken = errors.New("another request has taken the conversation")
	// ErrClosed: the generator is closed, or has failed.
	ErrClosed = errors.New("no tokens are made any more")
)
