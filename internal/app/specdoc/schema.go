package specdoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Patterns of texts that stand for numbers, as package strictyaml reads them.
const (
	durationUnit    = `(ns|us|µs|μs|ms|s|m|h)`
	durationPattern = `^\s*[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)` + durationUnit + `([0-9.]+` + durationUnit + `)*\s*$`
	sizePattern     = `^\s*[0-9]+\s*([KMGT]iB|B)?\s*$`
	typePattern     = `^(f32|bf16|u32|u8|u64)(\[[0-9]{1,4}\])?$`
)

type schema map[string]any

// Schema returns the JSON schema of a specification, draft 2020-12, with two spaces a level.
// Editors with a language server for YAML complete and check keys with it. It accepts every
// specification that the parser accepts. The parser also checks what a schema cannot say, such as
// the sum of the state of an agent.
func Schema() ([]byte, error) {
	root := section("")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Exoswarm: specification of a swarm"
	root["description"] = "exoswarm spec keys describes each key."
	root["allOf"] = conditions()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		return nil, fmt.Errorf("schema of a specification: %w", err)
	}
	return b.Bytes(), nil
}

// section returns the schema of the keys directly below a path, which ends with a dot or is empty.
func section(below string) schema {
	properties, required := schema{}, []string{}
	for _, k := range keys {
		name, ok := strings.CutPrefix(k.Path, below)
		if !ok || strings.Contains(name, ".") {
			continue
		}
		var of schema
		if k.Kind == Section {
			of = section(k.Path + ".")
		} else {
			of = k.schema()
		}
		of["description"] = k.Doc
		properties[name] = of
		if k.Required && k.Scope == All {
			required = append(required, name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// schema returns the schema of the values of a key that is no section.
func (k *Key) schema() schema {
	s := schema{}
	switch k.Kind {
	case Text, Code:
		s["type"] = "string"
	case Boolean:
		s["type"] = "boolean"
	case Integer, Number:
		s["type"] = map[Kind]string{Integer: "integer", Number: "number"}[k.Kind]
		if k.Min != "" {
			s["minimum"] = json.Number(k.Min)
		}
		if k.Max != "" {
			s["maximum"] = json.Number(k.Max)
		}
	case Duration:
		s["type"], s["pattern"] = "string", durationPattern
	case Size:
		s["type"], s["pattern"] = []string{"string", "integer"}, sizePattern
	case Texts:
		s = k.list()
	case OneOrAll:
		s["anyOf"] = []schema{{"type": "string"}, k.list()}
	case Numbers:
		s["type"], s["additionalProperties"] = "object", schema{"type": "number"}
	case Lengths:
		s["type"], s["items"] = "array", schema{"type": "number", "exclusiveMinimum": 0}
		s["minItems"], s["maxItems"] = json.Number(k.Min), json.Number(k.Max)
	case Tokens:
		s["type"] = "array"
		s["items"] = schema{"type": "integer", "minimum": json.Number(k.Min), "maximum": json.Number(k.Max)}
	case Ticks:
		one := schema{"type": "integer", "minimum": json.Number(k.Min), "maximum": json.Number(k.Max)}
		s["anyOf"] = []schema{one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}}
	case Jobs:
		s["type"], s["maxProperties"] = "object", json.Number(k.Max)
		s["additionalProperties"] = job()
	case Types:
		s["type"] = "object"
		s["additionalProperties"] = schema{"type": "string", "pattern": typePattern}
	}
	if len(k.Values) > 0 {
		s["enum"] = k.values()
	}
	if k.Default != "" {
		s["default"] = value(k)
	}
	return s
}

// job returns the schema of a job that rules submit.
func job() schema {
	return schema{
		"type": "object", "required": []string{"pool", "kind"}, "additionalProperties": false,
		"properties": schema{
			"pool":         schema{"enum": []string{"cpu", "gpu"}},
			"kind":         schema{"type": "string"},
			"spec":         schema{},
			"lane":         schema{"enum": []string{"high", "normal", "low", ""}},
			"tenant":       schema{"type": "string"},
			"max_attempts": schema{"type": "integer", "minimum": 0, "maximum": 100},
			"result_ttl_s": schema{"type": "integer", "minimum": 0, "maximum": 604800},
		},
	}
}

func (k *Key) list() schema {
	s := schema{"type": "array", "items": schema{"type": "string"}}
	if k.Max != "" {
		s["maxItems"] = json.Number(k.Max)
	}
	return s
}

func (k *Key) values() []any {
	values := make([]any, len(k.Values))
	for i, v := range k.Values {
		values[i] = v
		if k.Kind == Integer {
			values[i] = json.Number(v)
		}
	}
	return values
}

func value(k *Key) any {
	switch k.Kind {
	case Integer, Number:
		return json.Number(k.Default)
	case Boolean:
		return k.Default == "true"
	case Texts:
		return strings.Split(strings.Trim(k.Default, "[]"), ", ")
	}
	if text, err := strconv.Unquote(k.Default); err == nil {
		return text
	}
	return k.Default
}

// conditions returns what depends on other keys: the parameters of each cell, and the keys of one
// scope.
func conditions() []schema {
	agent := schema{
		"properties": schema{"addressed": schema{"const": "agent"}}, "required": []string{"addressed"},
	}
	var forAgents, forGroups []string // top-level keys of one scope
	var needed []string
	for _, k := range keys {
		if strings.Contains(k.Path, ".") {
			continue
		}
		switch k.Scope {
		case Agents:
			forAgents = append(forAgents, k.Path)
			if k.Required {
				needed = append(needed, k.Path)
			}
		case Groups, Keyed:
			forGroups = append(forGroups, k.Path)
		}
	}
	all := []schema{
		{"if": agent, "then": schema{
			"anyOf":      []schema{{"required": needed}, {"required": []string{"neighbours"}}},
			"properties": none(forGroups),
		}, "else": schema{
			"properties": none(forAgents),
		}},
		{"if": schema{"not": schema{"required": []string{"key"}}}, "then": schema{
			"properties": none([]string{"max_entities", "evict_after"}),
		}},
	}
	for _, c := range allCells() {
		params := schema{}
		for _, p := range c.params {
			of := schema{
				"type":        "number",
				"minimum":     p.Min,
				"maximum":     p.Max,
				"default":     p.Default,
				"description": p.Doc,
			}
			if p.Integer {
				of["type"] = "integer"
			}
			params[p.Name] = of
		}
		limited := schema{"properties": params}
		if c.kind != "custom" && c.kind != cells.QuantumName { // inputs of the circuit are further parameters
			limited["additionalProperties"] = false
		}
		all = append(all, schema{
			"if":   c.chosen(agent),
			"then": schema{"properties": schema{"cell": schema{"properties": schema{"params": limited}}}},
		})
	}
	return all
}

// chosen returns the condition that a specification chooses the cell. The default cell is also
// chosen without a kind.
func (c *cell) chosen(agent schema) schema {
	kind := schema{"properties": schema{"cell": schema{"properties": schema{"kind": schema{"const": c.kind}}}}}
	if standard := slices.Contains([]string{"predictor", "gru"}, c.kind) && c.agents == (c.kind == "gru"); !standard {
		kind["required"] = []string{"cell"}
		kind["properties"].(schema)["cell"].(schema)["required"] = []string{"kind"}
	}
	if c.agents {
		return schema{"allOf": []schema{agent, kind}}
	}
	return schema{"allOf": []schema{{"not": agent}, kind}}
}

// none returns properties that must not be there.
func none(names []string) schema {
	s := schema{}
	for _, n := range names {
		s[n] = false
	}
	return s
}
