package userfile

import "strings"

var stdout = map[string]bool{"-": true, "/dev/stdout": true, "/dev/fd/1": true, "/proc/self/fd/1": true}

// IsStdin reports whether a path of an input names standard input.
func IsStdin(path string) bool { return path == "-" || path == "/dev/stdin" || path == "/dev/fd/0" }

// IsStdout reports whether a path of an output names standard output.
func IsStdout(path string) bool { return stdout[path] }

// IsDescriptor reports whether a path names an open descriptor of this process. Names of
// standard output in full are among them; "-" is not.
func IsDescriptor(path string) bool {
	return path == "/dev/stdin" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") ||
		strings.HasPrefix(path, "/proc/self/fd/")
}
