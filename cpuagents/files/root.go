package files

import (
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs"
)

// Root is the name of a folder for the jobs of a tenant. An empty Tenant means jobs without a
// tenant, and access.Every means all jobs. Two tenants may have folders of the same name.
type Root struct{ Tenant, Name string }

// ParseRoots parses the folders that jobs may read and write, as operators write them: NAME=DIR, or
// tenant=TENANT,name=NAME,path=DIR. The values are paths of folders as written. A root that is
// named twice has the last folder.
func ParseRoots(list []string) (map[Root]string, error) {
	roots := map[Root]string{}
	bad := func(text string) error {
		return jobs.Errorf(
			jobs.CodeInvalid,
			"--root %q: write NAME=DIR, or tenant=TENANT,name=NAME,path=DIR for the jobs of a tenant, with a name "+
				"of letters, digits, '-' and '_'",
			text,
		)
	}
	for _, text := range list {
		root, dir := Root{}, ""
		if b, rest, ok := access.Cut(text); ok {
			name, path, is := strings.Cut(rest, ",path=")
			if name, is2 := strings.CutPrefix(name, "name="); is && is2 {
				root, dir = Root{b, name}, path
			}
		} else {
			root.Name, dir, _ = strings.Cut(text, "=")
		}
		if root.Tenant != "" && access.Check(root.Tenant) != nil || jobs.CheckID("root", root.Name) != nil ||
			dir == "" {
			return nil, bad(text)
		}
		roots[root] = dir
	}
	return roots, nil
}
