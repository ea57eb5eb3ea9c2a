package command

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// outputFormats is the annotation of a flag that OutputFlag has added.
const outputFormats = "formats"

// OutputFlag adds -o, which chooses one of two or more formats. The first is the default.
func OutputFlag(f *pflag.FlagSet, formats ...string) {
	f.StringP("output", "o", formats[0], alternatives(formats))
	_ = f.SetAnnotation("output", outputFormats, formats) // the flag exists
}

// CheckOutput returns an error of usage when -o has a value that OutputFlag does not list. It
// returns nil for a command whose -o is something else, and for one without.
func CheckOutput(f *pflag.FlagSet) error {
	flag := f.Lookup("output")
	if flag == nil {
		return nil
	}
	if formats := flag.Annotations[outputFormats]; len(formats) > 0 && !slices.Contains(formats, flag.Value.String()) {
		return Usage("--output %q: use %s", flag.Value, alternatives(formats))
	}
	return nil
}

// alternatives returns a list of two or more words as in "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
