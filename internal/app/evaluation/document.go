package evaluation

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/jobs"
)

// Propose returns the text of a specification with a setting. The order of the keys and comments
// stay, but for comments beside values that change. Parameters from which the alarm would follow
// instead are removed.
func Propose(text []byte, s Setting) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "tune: the specification: %v", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, jobs.Errorf(jobs.CodeInvalid, "tune: the specification is not a mapping")
	}
	top := doc.Content[0]
	set(top, "agents_per_group", strconv.Itoa(s.Agents))
	params := mapping(mapping(top, "cell"), "params")
	for _, name := range replaced {
		if i := index(params, name); i >= 0 {
			params.Content = slices.Delete(params.Content, i, i+2)
		}
	}
	set(params, "alarm", strconv.FormatFloat(s.Alarm, 'g', -1, 64))
	set(params, "suspect", strconv.FormatFloat(s.Suspect(), 'g', -1, 64))
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, fmt.Errorf("encode the specification: %w", err)
	}
	return b.Bytes(), e.Close()
}

// index returns the place of a key in the content of a mapping; -1 if it has none.
func index(m *yaml.Node, key string) int {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

func mapping(m *yaml.Node, key string) *yaml.Node {
	if i := index(m, key); i >= 0 && m.Content[i+1].Kind == yaml.MappingNode {
		return m.Content[i+1]
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	put(m, key, n)
	return n
}

func set(m *yaml.Node, key, number string) {
	put(m, key, &yaml.Node{Kind: yaml.ScalarNode, Value: number})
}

// put sets a key. A comment beside another value was about that value, so it goes.
func put(m *yaml.Node, key string, n *yaml.Node) {
	if i := index(m, key); i >= 0 {
		if old := m.Content[i+1]; old.Value == n.Value {
			n.LineComment = old.LineComment
		} else if old.LineComment != "" {
			n.LineComment = "# chosen by exoswarm tune"
		}
		m.Content[i+1] = n
		return
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, n)
}
