package auth

import (
	"os"
	"strings"
	"testing"
)

// TestDocument: docs/operations.md shows the roles as they are.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "auth.Roles, which a test compares -->\n")
	if got, _, _ := strings.Cut(rest, "<!-- end of roles -->"); got != Table() {
		t.Errorf("docs/operations.md shows other roles than Roles: put in\n%s", Table())
	}
}
