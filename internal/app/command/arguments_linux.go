package command

import (
	"os"
	"strings"
	"unsafe"

	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// hideArguments overwrites the passwords and tokens of URLs on the command line, so that ps and
// /proc/PID/cmdline do not show them while the process runs. The strings of os.Args lie in the
// memory that the kernel shows, so they are copied first. It must run before anything else keeps a
// part of os.Args.
func hideArguments() {
	for i, arg := range os.Args {
		if i == 0 || redact.Secrets(arg) == arg {
			continue
		}
		os.Args[i] = strings.Clone(arg)
		from := strings.Index(arg, "://") + len("://")
		shown := unsafe.Slice(unsafe.StringData(arg), len(arg))
		for at := from; at < strings.LastIndex(os.Args[i], "@"); at++ {
			if c := os.Args[i][at]; c != '@' {
				shown[at] = 'x'
			}
		}
	}
}
