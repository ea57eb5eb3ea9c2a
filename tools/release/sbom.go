package main

import (
	"encoding/json"
	"fmt"
	"time"
)

// spdx returns the list of parts of the programs as a document of SPDX 2.3.
func (r release) spdx(p platform, parts []part) ([]byte, error) {
	type reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	type pack struct {
		ID         string      `json:"SPDXID"`
		Name       string      `json:"name"`
		Version    string      `json:"versionInfo"`
		Location   string      `json:"downloadLocation"`
		Analyzed   bool        `json:"filesAnalyzed"`
		Concluded  string      `json:"licenseConcluded"`
		Declared   string      `json:"licenseDeclared"`
		Copyright  string      `json:"copyrightText"`
		References []reference `json:"externalRefs,omitempty"`
	}
	type relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
	const unknown, root = "NOASSERTION", "SPDXRef-exoswarm"
	packages := []pack{{
		ID: root, Name: "exoswarm", Version: r.version, Location: "https://github.com/exoswarm/exoswarm",
		Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: unknown,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/github.com/exoswarm/exoswarm@" + r.version}},
	}}
	relations := []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", root}}
	for i, p := range parts {
		id := fmt.Sprintf("SPDXRef-part-%d", i+1)
		packages = append(packages, pack{
			ID: id, Name: p.path, Version: p.version, Location: unknown, Concluded: p.licence, Declared: p.licence,
			Copyright: unknown, References: []reference{{"PACKAGE-MANAGER", "purl", p.url}},
		})
		relations = append(relations, relation{root, "CONTAINS", id})
	}
	name := fmt.Sprintf("exoswarm-%s-%s", r.version, p)
	return json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": "https://github.com/exoswarm/exoswarm/releases/" + r.version + "/" + name,
		"creationInfo": map[string]any{
			"created": r.time.Format(time.RFC3339), "creators": []string{"Tool: exoswarm-tools-release"},
		},
		"packages": packages, "relationships": relations,
	}, "", " ")
}
