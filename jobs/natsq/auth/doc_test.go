package auth

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocument: docs/operations.md shows the roles as they are.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "auth.Roles, which a test compares -->\n")
	if got, _, _ := strings.Cut(rest, "<!-- end of roles -->"); got != Markdown() {
		t.Errorf("docs/operations.md shows other roles than Roles: put in\n%s", Markdown())
	}
}

// TestFolded: the document loses no subject by writing streams together.
func TestFolded(t *testing.T) {
	t.Parallel()
	for _, r := range Roles() {
		for _, subjects := range [][]string{r.Publish, r.Deny, r.Subscribe} {
			var got []string
			for _, s := range folded(subjects) {
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
