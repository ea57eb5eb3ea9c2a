package auth

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/roles.md")

// TestDocument: docs/roles.md shows the roles as they are.
func TestDocument(t *testing.T) {
	t.Parallel()
	const page = "../../../docs/roles.md"
	if *update {
		if err := os.WriteFile(page, []byte(markdown()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || string(text) != markdown() {
		t.Errorf("docs/roles.md shows other roles than Roles (error %v): "+
			"go test ./jobs/natsq/auth -run TestDocument -update", err)
	}
}

// TestFolded: the document loses no subject by writing streams together.
func TestFolded(t *testing.T) {
	t.Parallel()
	var f roleText
	for _, r := range Roles() {
		for _, subjects := range [][]string{r.Publish, r.Deny, r.Subscribe} {
			var got []string
			for _, s := range f.folded(subjects) {
				if before, after, is := strings.Cut(s, "SET"); is {
					number, after, dotted := strings.Cut(after, ".")
					if dotted {
						after = "." + after
					}
					i, err := strconv.Atoi(number)
					if err != nil {
						t.Fatalf("the name of a set in %s: %v", s, err)
					}
					for _, stream := range f.sets[i-1] {
						got = append(got, before+stream+after)
					}
					continue
				}
				before, after, several := strings.Cut(s, "FIXED")
				if !several {
					got = append(got, s)
					continue
				}
				var but []string
				if rest, ok := strings.CutPrefix(after, "-{"); ok {
					rest, after, _ = strings.Cut(rest, "}")
					but = strings.Split(rest, ",")
				}
				got = append(got, each(before+"%s"+after, fixed, but...)...)
			}
			if !slices.Equal(got, subjects) {
				t.Errorf("role %s: the document shows %v instead of %v", r.Name, got, subjects)
			}
		}
	}
}
