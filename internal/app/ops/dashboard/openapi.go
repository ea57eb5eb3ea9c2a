package dashboard

import (
	"encoding/json"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/programs"
)

// OpenAPI returns the description of the API (OpenAPI 3.1) as indented JSON, made from the table of
// routes and the types of the answers. docs/openapi.json is a copy, which a test compares: a change
// of a type that clients read shows up there in review. The text is the same for each call.
func OpenAPI() []byte {
	s := schemas{}
	paths := map[string]map[string]any{}
	failure := s.of(reflect.TypeFor[Failure]())
	for _, t := range slices.Concat(table, actionTable, programTable) {
		op := map[string]any{
			"operationId": t.name,
			"summary":     t.summary,
			"tags":        []string{strings.SplitN(t.path, "/", 2)[0]},
		}
		if len(t.params) > 0 {
			ps := []any{}
			for _, p := range t.params {
				ps = append(ps, p.describe())
			}
			op["parameters"] = ps
		}
		if t.body != nil {
			op["requestBody"] = map[string]any{
				"required": true, "content": content("application/json", s.of(reflect.TypeOf(t.body))),
			}
		}
		if t.takes != "" {
			op["requestBody"] = map[string]any{"required": true, "content": content(t.takes, binary)}
		}
		ok := map[string]any{"description": "success"}
		status := "204"
		if t.answer != nil {
			status = "200"
			media := t.media
			if media == "" {
				media = "application/json"
			}
			schema := s.of(reflect.TypeOf(t.answer))
			if media == programs.MediaArrays {
				schema = binary
			}
			ok["content"] = content(media, schema)
		}
		op["responses"] = map[string]any{
			status: ok,
			"default": map[string]any{
				"description": "failure", "content": content("application/json", failure),
			},
		}
		if t.public {
			op["security"] = []any{}
		}
		at := "/" + t.path
		if paths[at] == nil {
			paths[at] = map[string]any{}
		}
		paths[at][strings.ToLower(t.method)] = op
	}
	text, err := json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "Exoswarm dashboard", "version": "1",
			"description": "Reads the state of a cluster, and serves programs with exoswarm serve --programs. " +
				"Fields may be added; none are removed or renamed within v1.",
		},
		"servers": []any{map[string]any{"url": "/api/v1"}},
		"paths":   paths,
		"components": map[string]any{
			"schemas": s,
			"securitySchemes": map[string]any{
				"token": map[string]any{"type": "http", "scheme": "bearer"},
				"cookie": map[string]any{
					"type": "apiKey", "in": "cookie", "name": "exoswarm-PORT",
					"description": "set by POST /login; __Host-exoswarm-PORT under TLS",
				},
			},
		},
		"security": []any{map[string]any{"token": []any{}}, map[string]any{"cookie": []any{}}},
	}, "", " ")
	if err != nil {
		panic("dashboard: " + err.Error()) // maps of texts
	}
	return append(text, '\n')
}

// binary is the schema of arrays, which JSON does not describe.
var binary = map[string]any{"type": "string", "format": "binary"}

// content is the content of a body with one media type.
func content(media string, schema any) map[string]any {
	return map[string]any{media: map[string]any{"schema": schema}}
}

// describe returns a parameter as OpenAPI has it.
func (p param) describe() map[string]any {
	schema := map[string]any{"type": p.kind}
	switch {
	case p.kind == "integer":
		schema["minimum"], schema["maximum"] = p.least, p.most
		if p.in == "query" {
			schema["default"] = json.Number(p.initial)
		}
	case p.kind == "boolean":
		schema["default"] = p.initial == "true"
	case p.values != nil:
		schema["enum"] = p.values
	}
	return map[string]any{
		"name": p.name, "in": p.in, "required": p.in == "path", "description": p.doc, "schema": schema,
	}
}

// schemas are the JSON schemas of structs, by package and name, such as "cluster.State". They
// follow the rules of encoding/json: embedded structs are part of the outer one, a field with
// omitempty or omitzero is not required, and a slice, map or pointer without it may be null.
type schemas map[string]any

// of returns the schema of a type as encoding/json writes it. Structs with a name become
// references.
func (s schemas) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{s.of(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": []string{"string", "null"}, "contentEncoding": "base64"}
		}
		return map[string]any{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		name := path.Base(t.PkgPath()) + "." + t.Name()
		if _, known := s[name]; !known {
			s[name] = nil // ends recursion
			properties, required := map[string]any{}, []string{}
			s.fields(t, properties, &required)
			s[name] = map[string]any{"type": "object", "properties": properties, "required": required}
		}
		return map[string]any{"$ref": "#/components/schemas/" + name}
	default:
		return map[string]any{"type": "integer"}
	}
}

// fields adds the members of a struct, and of the structs that it embeds, to properties.
func (s schemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			s.fields(inner, properties, required)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		of := f.Type
		if strings.Contains(options, "omit") {
			if of.Kind() == reflect.Pointer {
				of = of.Elem() // absent, never null
			}
		} else {
			*required = append(*required, name)
		}
		properties[name] = s.of(of)
	}
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
