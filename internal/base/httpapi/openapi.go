package httpapi

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// API is what a description says of all routes together.
type API struct {
	Title, Version, Description string
	Server                      string // the address of the routes, such as /api/v1
	// Security are the ways to log in, by name, each as OpenAPI has it.
	Security map[string]any
	// Names are the names of schemas, by package and type, that differ from these: a type may move to
	// another package, and clients have been made with the old name.
	Names map[string]string
}

// Describe returns the description of an API (OpenAPI 3.1) as indented JSON, made from its routes
// and the types of their answers. The text is the same for each call.
func (a API) Describe(routes []Route) []byte {
	s := schemas{names: a.Names, all: map[string]any{}}
	paths := map[string]map[string]any{}
	usual := content(JSON, s.of(reflect.TypeFor[Failure]()))
	for _, t := range routes {
		at := "/" + t.Path
		if paths[at] == nil {
			paths[at] = map[string]any{}
		}
		failure := usual
		if t.Failure != nil {
			failure = content(JSON, s.of(reflect.TypeOf(t.Failure)))
		}
		paths[at][strings.ToLower(t.Method)] = t.describe(&s, failure)
	}
	logins := []any{}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(a.Security))) {
		logins = append(logins, map[string]any{name: []any{}})
	}
	text, err := json.MarshalIndent(map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": a.Title, "version": a.Version, "description": a.Description},
		"servers":    []any{map[string]any{"url": a.Server}},
		"paths":      paths,
		"components": map[string]any{"schemas": s.all, "securitySchemes": a.Security},
		"security":   logins,
	}, "", " ")
	if err != nil {
		panic("httpapi: " + err.Error()) // maps of texts
	}
	return append(text, '\n')
}

func (t *Route) describe(s *schemas, failure map[string]any) map[string]any {
	op := map[string]any{
		"operationId": t.Name, "summary": t.Summary, "tags": []string{strings.SplitN(t.Path, "/", 2)[0]},
	}
	if t.Server != "" {
		op["servers"] = []any{map[string]any{"url": t.Server}}
	}
	if len(t.Params) > 0 {
		all := []any{}
		for _, p := range t.Params {
			all = append(all, p.describe())
		}
		op["parameters"] = all
	}
	switch {
	case t.Takes != "":
		op["requestBody"] = map[string]any{"required": true, "content": content(t.Takes, binary)}
	case t.Body != nil:
		op["requestBody"] = map[string]any{"required": true, "content": content(JSON, s.of(reflect.TypeOf(t.Body)))}
	}
	ok, status := map[string]any{"description": "success"}, "204"
	if t.Answer != nil {
		status = "200"
		switch {
		case t.Media == "":
			ok["content"] = content(JSON, s.of(reflect.TypeOf(t.Answer)))
		case strings.HasPrefix(t.Media, "text/"):
			ok["content"] = content(t.Media, s.of(reflect.TypeOf(t.Answer)))
		default:
			s.of(reflect.TypeOf(t.Answer))
			ok["content"] = content(t.Media, binary)
		}
	}
	op["responses"] = map[string]any{
		status: ok, "default": map[string]any{"description": "failure", "content": failure},
	}
	if t.Public {
		op["security"] = []any{}
	}
	return op
}

// binary is the schema of arrays, which JSON does not describe.
var binary = map[string]any{"type": "string", "format": "binary"}

func content(media string, schema any) map[string]any {
	return map[string]any{media: map[string]any{"schema": schema}}
}

func (p *Param) describe() map[string]any {
	schema := map[string]any{"type": p.Kind}
	switch {
	case p.Kind == "integer":
		schema["minimum"], schema["maximum"] = p.Min, p.Max
		if p.In == "query" {
			schema["default"] = json.Number(p.Default)
		}
	case p.Kind == "boolean":
		schema["default"] = p.Default == "true"
	case p.Values != nil:
		schema["enum"] = p.Values
	}
	return map[string]any{
		"name": p.Name, "in": p.In, "required": p.In == "path", "description": p.Doc, "schema": schema,
	}
}

// schemas are the JSON schemas of structs, by package and name, such as "cluster.State". They
// follow the rules of encoding/json: embedded structs are part of the outer one, a field with
// omitempty or omitzero is not required, and a slice, map or pointer without it may be null.
type schemas struct {
	names map[string]string // see API.Names
	all   map[string]any
}

// of returns the schema of a type as encoding/json writes it. Structs with a name become
// references.
func (s *schemas) of(t reflect.Type) map[string]any {
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
		if other := s.names[name]; other != "" {
			name = other
		}
		if _, known := s.all[name]; !known {
			s.all[name] = nil // ends recursion
			properties, required := map[string]any{}, []string{}
			s.fields(t, properties, &required)
			s.all[name] = map[string]any{"type": "object", "properties": properties, "required": required}
		}
		return map[string]any{"$ref": "#/components/schemas/" + name}
	default:
		return map[string]any{"type": "integer"}
	}
}

// fields adds the members of a struct, and of the structs that it embeds, to properties.
func (s *schemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
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
