package auth

import "github.com/exoswarm/exoswarm/jobs"

// invalid is an error of what the caller asked for or of what stands in the folder; the sentence
// names the cure.
func invalid(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInvalid, "auth: "+format, args...)
}
