package bucket

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
)

// TestNoOpener: a scheme whose store the program leaves out is an error that names the package to
// import. The external tests of this package import both stores, so they are taken out meanwhile.
func TestNoOpener(t *testing.T) {
	kept := openers.of
	defer func() { openers.of = kept }()
	openers.of = nil
	for _, scheme := range []string{"s3", "gs"} {
		_, err := Open(t.Context(), scheme+"://bucket/prefix")
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "import internal/app/bucket/cloud") {
			t.Errorf("Open(%s): got %v, want the name of the package", scheme, err)
		}
	}
	var gave string
	Register("s3", func(_ context.Context, u *url.URL, prefix string) (Bucket, error) {
		gave = u.String() + " " + prefix
		return nil, nil
	})
	if _, err := Open(t.Context(), "s3://bucket/a/b?c=d"); err != nil || gave != "s3://bucket?c=d a/b/" {
		t.Errorf("the opener of s3 got %q, %v", gave, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second opener replaces the first one")
		}
	}()
	Register("s3", nil)
}
