package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

// TestOpenAPI: the committed description is made from the tables of routes.
func TestOpenAPI(t *testing.T) {
	const file = "../../../../docs/openapi.json"
	want := OpenAPI()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/openapi.json is old: run go test ./internal/app/ops/dashboard -run TestOpenAPI -update")
	}
	var doc struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(want, &doc); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if op.OperationID == "" || names[op.OperationID] {
				t.Errorf("%s %s: operation %q", method, path, op.OperationID)
			}
			names[op.OperationID] = true
		}
	}
	if s := (*Server)(nil); len(names) != len(s.table())+len(s.actionTable())+len(programTable())+len(modelTable()) {
		t.Errorf("%d operations, want one for each route", len(names))
	}
	for ref := range strings.SplitSeq(string(want), `"#/components/schemas/`) {
		if name, _, found := strings.Cut(ref, `"`); found && !strings.HasPrefix(ref, "{") &&
			doc.Components.Schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
}

// TestVendored: the vendored files are as vendor.json names them.
func TestVendored(t *testing.T) {
	for _, list := range []string{"ui/vendor", "testdata/axe"} {
		text, err := os.ReadFile(list + "/vendor.json")
		if err != nil {
			t.Fatal(err)
		}
		var packages []struct {
			Name, Version, License, Integrity string
			Files                             map[string]string // to the SHA-256
		}
		if err := json.Unmarshal(text, &packages); err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"vendor.json": true}
		for _, p := range packages {
			if p.Name == "" || p.Version == "" || p.License == "" || !strings.HasPrefix(p.Integrity, "sha512-") {
				t.Errorf("%s: package %q lacks a field", list, p.Name)
			}
			for file, want := range p.Files {
				known[file] = true
				data, err := os.ReadFile(list + "/" + file)
				if err != nil {
					t.Error(err)
				}
				if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
					t.Errorf("%s/%s has the hash %x", list, file, sum)
				}
			}
		}
		entries, err := fs.ReadDir(os.DirFS(list), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !known[e.Name()] {
				t.Errorf("%s/%s is not in vendor.json", list, e.Name())
			}
		}
	}
}

// TestSite: all files together are small, none makes HTML of text, and every import is there.
func TestSite(t *testing.T) {
	size := len(site().index.zipped)
	for name, a := range site().files {
		if strings.HasSuffix(name, ".LICENSE") || strings.HasSuffix(name, ".json") {
			continue
		}
		size += len(a.zipped)
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		text := string(a.body)
		for _, bad := range []string{
			"innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "eval(",
			"new Function", "document.write", "localStorage",
		} {
			if strings.Contains(text, bad) {
				t.Errorf("%s uses %s", name, bad)
			}
		}
	}
	t.Logf("%d bytes compressed", size)
	if size > 100_000 {
		t.Errorf("the site has %d bytes compressed, want at most 100,000", size)
	}
	if bytes.Contains(site().index.body, []byte("{{")) {
		t.Error("a mark is left in the page")
	}
}
