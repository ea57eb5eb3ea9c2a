package auth

import "github.com/exoswarm/exoswarm/jobs"

// invalid returns an error of jobs.CodeInvalid, for a wrong argument or a damaged folder. The text
// names the cure.
func invalid(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInvalid, "auth: "+format, args...)
}
