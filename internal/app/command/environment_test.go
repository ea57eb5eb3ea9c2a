package command

import (
	"fmt"
	"testing"

	"github.com/spf13/pflag"
)

// TestLists: the variable of a list has several values, the variable of another flag has one value
// with semicolons in it, and the command line comes before both.
func TestLists(t *testing.T) {
	for _, x := range []struct {
		env, line string
		root      []string
		csv       []string
	}{
		{"a=/a; b=/b ;", "", []string{"a=/a", "b=/b"}, []string{`delimiter=";"`}},
		{"a=/a", "", []string{"a=/a"}, []string{`delimiter=";"`}},
		{"a=/a;b=/b", "--root=c=/c", []string{"c=/c"}, []string{`delimiter=";"`}},
		{"", "", []string{}, []string{`delimiter=";"`}},
	} {
		t.Setenv("EXOSWARM_ROOT", x.env)
		t.Setenv("EXOSWARM_CSV", `delimiter=";"`)
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		root, csv := f.StringArray("root", nil, ""), f.StringArray("csv", nil, "")
		Lists(f, "root", "not-there")
		if x.line != "" {
			if err := f.Parse([]string{x.line}); err != nil {
				t.Fatal(err)
			}
		}
		if err := Environment(f); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(*root) != fmt.Sprint(x.root) || fmt.Sprint(*csv) != fmt.Sprint(x.csv) {
			t.Errorf("%q and %q: root %q, csv %q", x.env, x.line, *root, *csv)
		}
	}
}
