package main

import (
	"regexp"
	"strings"
)

// described matches what git describe --tags --dirty prints: a tag, and the commits since then.
var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(-[0-9A-Za-z.]+?)?(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)

// semantic returns a version as a semantic one: v1.2.3-4-gabc is 1.2.3+4.gabc, which is not before
// 1.2.3. A commit without a tag is 0.0.0 with the commit.
func semantic(version string) string {
	m := described.FindStringSubmatch(version)
	if m == nil {
		return "0.0.0-g" + strings.ReplaceAll(version, "-", ".")
	}
	var since []string
	if m[3] != "" {
		since = append(since, m[3], m[4])
	}
	if m[5] != "" {
		since = append(since, "dirty")
	}
	v := m[1] + m[2]
	if len(since) > 0 {
		v += "+" + strings.Join(since, ".")
	}
	return v
}

// debian returns a version in the order of Debian: a pre-release is before its release.
func debian(version string) string { return strings.Replace(semantic(version), "-", "~", 1) }
