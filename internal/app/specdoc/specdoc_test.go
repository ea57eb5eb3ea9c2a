package specdoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// TestReference: it describes every key and every parameter, or the ones that are asked for.
func TestReference(t *testing.T) {
	all, _ := Reference("")
	for _, k := range Keys() {
		if !strings.Contains(all, "\n"+k.Path+": ") && !strings.HasPrefix(all, k.Path+": ") {
			t.Errorf("the reference has no %s", k.Path)
		}
	}
	for _, c := range allCells() {
		part, ok := Reference(c.kind)
		if !ok || !strings.Contains(all, "\ncell "+c.title()+"\n") {
			t.Errorf("the reference has no cell %s", c.title())
		}
		for _, p := range c.params {
			if !strings.Contains(part, "\n    "+p.Name+": ") {
				t.Errorf("the reference of %s has no %s", c.title(), p.Name)
			}
		}
	}
	for line := range strings.Lines(all) {
		if n := len([]rune(line)); n > width+1 && strings.Contains(strings.TrimSpace(line), " ") && line[0] == ' ' {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	vote, ok := Reference("vote")
	if !ok || !strings.Contains(vote, "vote.rule: ") || strings.Contains(vote, "seed: ") {
		t.Errorf("the reference of vote is %q", vote)
	}
	if text, ok := Reference("vot"); ok {
		t.Errorf("the reference of vot is %q, want none", text)
	}
}

// TestKeys: each field of a specification that YAML sets has a description of its type, and each
// description has a field.
func TestKeys(t *testing.T) {
	fields := map[string]reflect.Type{}
	var walk func(below string, v reflect.Type)
	walk = func(below string, v reflect.Type) {
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Field(i).Tag.Get("yaml"), ",")
			of := v.Field(i).Type
			if name == "-" { // the parser fills it in
				continue
			}
			fields[below+name] = of
			if of.Kind() == reflect.Struct {
				walk(below+name+".", of)
			}
		}
	}
	walk("", reflect.TypeFor[swarm.Spec]())
	kinds := map[Kind]string{
		Text: "string", Code: "string", Number: "float64", Boolean: "*bool", Duration: "strictyaml.Duration",
		Size: "strictyaml.Size", Texts: "[]string", OneOrAll: "dialect.Forms", Numbers: "map[string]float64",
		Types: "map[string]string", Lengths: "swarm.Sides", Tokens: "[]int32", Ticks: "swarm.Delay",
		Jobs: "map[string]swarm.Job",
	}
	for path, of := range fields {
		k, ok := Find(path)
		if !ok {
			t.Errorf("%s has no description", path)
			continue
		}
		want := kinds[k.Kind]
		if k.Kind == Integer {
			want = strings.TrimRight(of.String(), "0123456789")
			if want != "int" && want != "uint" && of != reflect.TypeFor[swarm.Nearest]() {
				t.Errorf("%s is a %s, described as %q", path, of, k.Kind)
			}
			continue
		}
		if k.Kind == Section && of.Kind() == reflect.Struct {
			continue
		}
		if of.String() != want && (k.Kind != Boolean || of.Kind() != reflect.Bool) {
			t.Errorf("%s is a %s, described as %q", path, of, k.Kind)
		}
	}
	for _, k := range Keys() {
		if _, ok := fields[k.Path]; !ok {
			t.Errorf("%s is described, and no specification has it", k.Path)
		}
		if !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s: the description %q is no sentence", k.Path, k.Doc)
		}
	}
	if kind, _ := Find("cell.kind"); !slices.Equal(slices.Sorted(slices.Values(kind.Values)),
		slices.Sorted(slices.Values(append(cells.Names(), cells.CustomName, cells.LifeName, cells.SIRName,
			cells.IzhikevichName, cells.BoidsName, cells.CirclesName, cells.ColonyName, cells.QuantumName,
			cells.TransformerName)))) {
		t.Errorf("the cells %v are described, there are %v", kind.Values, cells.Names())
	}
	for _, c := range allCells() {
		if len(c.params) == 0 && c.kind != cells.LifeName {
			t.Errorf("%s has no parameters", c.title())
		}
	}
}

// bases are the specifications in which a key is tried, by path or by scope. The key is added.
var bases = map[string]map[string]any{
	"":                          {"name": "x"},
	string(Agents):              {"name": "x", "addressed": "agent", "agents": 1 << 20, "vote": candidates("a", "b")},
	string(Keyed):               {"name": "x", "key": "id"},
	string(GRUGroups):           {"name": "x", "cell": map[string]any{"kind": "gru"}},
	"agents":                    {"name": "x", "addressed": "agent", "vote": candidates("a", "b")},
	"addressed=agent":           {"name": "x", "agents": 256, "vote": candidates("a", "b")},
	"cell.kind=life":            onGrid(map[string]any{"width": 3, "height": 3}),
	"neighbours.width":          onGrid(map[string]any{"height": 1}),
	"neighbours.height":         onGrid(map[string]any{"width": 1}),
	"cell.kind=sir":             onGraph(map[string]any{"random": map[string]any{"degree": 1}}),
	"neighbours.random.degree":  onGraph(map[string]any{}),
	"neighbours.random.seed":    onGraph(map[string]any{"random": map[string]any{"degree": 1}}),
	"neighbours.ring.reach":     onGraph(map[string]any{}),
	"neighbours.ring.rewire":    onGraph(map[string]any{"ring": map[string]any{"reach": 1}}),
	"neighbours.ring.seed":      onGraph(map[string]any{"ring": map[string]any{"reach": 1}}),
	"neighbours.ring.delay":     spiking(map[string]any{"ring": map[string]any{"reach": 1}}),
	"neighbours.random.delay":   spiking(map[string]any{"random": map[string]any{"degree": 1}}),
	"neighbours.directed":       onGraph(map[string]any{"random": map[string]any{"degree": 1}}),
	"cell.kind=izhikevich":      onGraph(map[string]any{"random": map[string]any{"degree": 1}}),
	string(Izhikevich):          neurons(),
	string(Lattice):             onLattice(),
	"cell.kind=boids":           inBox("boids", map[string]any{"size": []int{9, 9}, "radius": 2}),
	"cell.kind=circles":         inBox("circles", map[string]any{"size": []int{9, 9, 9}, "radius": 2}),
	"cell.kind=colony":          inBox("colony", map[string]any{"size": []int{9, 9}, "radius": 2}),
	"cell.kind=quantum":         ofQubits(),
	"cell.kind=transformer":     ofTokens(),
	string(Language):            ofTokens(),
	"neighbours.space.nearest":  inBox("boids", map[string]any{"size": []int{9, 9}, "radius": 2}),
	"neighbours.space.periodic": inBox("boids", map[string]any{"size": []int{9, 9}, "radius": 2}),
	"devices":                   onGrid(map[string]any{"width": 3, "height": 3}),
	"neighbours.periodic":       onGrid(map[string]any{"width": 3, "height": 3}),
	"knowledge.nodes":           hearing(),
	"knowledge.units":           hearing(),
	"knowledge.merge":           hearing(),
	"knowledge.rate":            hearing(),
	"knowledge.focus":           hearing("merge", "attention"),
	"knowledge.by":              hearing(),
	"knowledge.by=key":          hearing("nodes", 9),
	"vote.quorum":               {"name": "x", "vote": map[string]any{"rule": "quorum"}},
	"vote.rule=quorum":          {"name": "x", "vote": map[string]any{"quorum": 0.5}},
	"csv.names":                 {"name": "x", "csv": map[string]any{"header": false}},
	"page_size=64KiB":           {"name": "x", "agents_per_group": 16},
	"agents_per_group=4096":     {"name": "x", "page_size": "64MiB"},
	string(Training):            training(),
	"fleet.window":              {"name": "x", "fleet": map[string]any{"false_discoveries": 0.1}},
	"cell.items":                asking(map[string]any{}),
	"cell.embed.rows":           asking(map[string]any{"embed": map[string]any{"width": 2}}),
	"cell.embed.width":          asking(map[string]any{"embed": map[string]any{"rows": 9}}),
}

func candidates(names ...string) map[string]any { return map[string]any{"candidates": names} }

// hearing returns a specification of a swarm whose agents hear a node of up to eight units. keys
// and values say more of the knowledge.
func hearing(pairs ...any) map[string]any {
	knowledge := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		knowledge[pairs[i].(string)] = pairs[i+1]
	}
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 1 << 20, "vote": candidates("a", "b"),
		"hear": []string{"knowledge"}, "knowledge": knowledge,
		"cell": map[string]any{"params": map[string]any{"hidden": 32}},
	}
}

func training() map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 256, "vote": candidates("a", "b"),
		"train": map[string]any{"target": "y", "sequence": "s"},
	}
}

// asking returns a specification of a swarm of agents of 32 units.
func asking(cell map[string]any) map[string]any {
	cell["params"] = map[string]any{"hidden": 32}
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 1 << 20, "vote": candidates("a", "b"), "cell": cell,
	}
}

func onGrid(neighbours map[string]any) map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "cell": map[string]any{"kind": "life"}, "neighbours": neighbours,
	}
}

func ofQubits() map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 256,
		"cell": map[string]any{"kind": "quantum", "circuit": "qubit q; bit c; c = measure q;"},
	}
}

func ofTokens() map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 1, "page_size": "1GiB",
		"cell": map[string]any{"kind": "transformer", "model": "m", "exact": true},
	}
}

func onLattice() map[string]any {
	spec := onGrid(map[string]any{"width": 1, "height": 1})
	spec["cell"] = map[string]any{
		"kind": "custom", "state": map[string]any{"v": "u8"}, "step": lattice.StepSignature + " { self.v++; }",
	}
	return spec
}

func onGraph(neighbours map[string]any) map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 1 << 21, "cell": map[string]any{"kind": "sir"},
		"neighbours": neighbours,
	}
}

func neurons() map[string]any { return spiking(map[string]any{"random": map[string]any{"degree": 1}}) }

func spiking(neighbours map[string]any) map[string]any {
	spec := onGraph(neighbours)
	spec["cell"] = map[string]any{"kind": "izhikevich"}
	return spec
}

func inBox(kind string, space map[string]any) map[string]any {
	return map[string]any{
		"name": "x", "addressed": "agent", "agents": 100, "cell": map[string]any{"kind": kind},
		"neighbours": map[string]any{"space": space},
	}
}

// with returns a specification that has a value for a key, in YAML.
func with(t *testing.T, k *Key, value any) []byte {
	t.Helper()
	base, ok := bases[fmt.Sprintf("%s=%v", k.Path, value)]
	for _, name := range []string{k.Path, string(k.Scope), ""} {
		if !ok {
			base, ok = bases[name]
		}
	}
	text, err := yaml.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := yaml.Unmarshal(text, &spec); err != nil { // a copy
		t.Fatal(err)
	}
	at, parts := spec, strings.Split(k.Path, ".")
	for _, p := range parts[:len(parts)-1] {
		below, ok := at[p].(map[string]any)
		if !ok {
			below = map[string]any{}
			at[p] = below
		}
		at = below
	}
	at[parts[len(parts)-1]] = value
	if text, err = yaml.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	return text
}

// accepted reports whether the parser and the schema accept a specification.
func accepted(t *testing.T, s *jsonschema.Schema, text []byte) (parser, schema error) {
	t.Helper()
	_, parser = swarm.Parse("x.yaml", text)
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v = nil
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return parser, s.Validate(v)
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("spec.json", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("spec.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBounds: the parser accepts the bounds and the values that are described, and refuses those
// beyond; the schema accepts whatever the parser accepts, and refuses other values and numbers.
func TestBounds(t *testing.T) {
	s := compiled(t)
	// Bounds that depend on other keys as well.
	derived := []string{
		"csv.names", "seed", "neighbours.random.seed", "neighbours.ring.seed", "vote.candidates", "agents",
		"train.seed",
	}
	for _, k := range Keys() {
		try := func(value any, valid, bySchema bool) {
			t.Helper()
			text := with(t, &k, value)
			parser, schema := accepted(t, s, text)
			if (parser == nil) != valid {
				t.Errorf("%s: %v: the parser says %v\n%s", k.Path, value, parser, text)
			}
			if bySchema && (schema == nil) != valid {
				t.Errorf("%s: %v: the schema says %v\n%s", k.Path, value, schema, text)
			}
		}
		for _, v := range k.Values {
			switch {
			case k.Kind == Integer:
				var n int
				_, _ = fmt.Sscan(v, &n)
				try(n, true, true)
			case k.Path != "cell.kind" || v != "custom":
				try(v, true, true)
			}
		}
		if len(k.Values) > 0 && k.Kind == Text {
			try("other", false, true)
		}
		if slices.Contains(derived, k.Path) {
			continue
		}
		for i, bound := range []string{k.Min, k.Max} {
			if bound == "" {
				continue
			}
			beyond := int64(2*i - 1)
			switch k.Kind {
			case Integer:
				var n int64
				_, _ = fmt.Sscan(bound, &n)
				try(n, true, true)
				if n+beyond != 0 { // the default
					try(n+beyond, false, true)
				} else {
					try(-1, false, true)
				}
			case Ticks:
				var n int64
				_, _ = fmt.Sscan(bound, &n)
				try(n, true, true)
				try([]int64{n, n}, true, true)
				try(n+beyond, false, true)
				try([]int64{n, n + beyond}, false, true)
				try([]int64{n}, false, true)
				try(float64(n)+0.5, false, true)
			case Number:
				var n float64
				_, _ = fmt.Sscan(bound, &n)
				try(n+float64(beyond), false, true)
			case Duration:
				var d strictyaml.Duration
				if err := yaml.Unmarshal([]byte(bound), &d); err != nil {
					t.Fatal(err)
				}
				try(bound, true, true)
				try(fmt.Sprintf("%dns", int64(d)+beyond), false, false)
			case Size:
				n, err := strictyaml.ParseSize(bound)
				if err != nil {
					t.Fatal(err)
				}
				try(bound, true, true)
				try(n+beyond*4096, false, false)
			case Texts, OneOrAll:
				var n int
				_, _ = fmt.Sscan(bound, &n)
				var names []string
				for j := range n + int(beyond) {
					names = append(names, fmt.Sprintf("c%d", j))
				}
				if i == 1 {
					try(names[:n], !strings.HasPrefix(k.Path, "csv.time"), k.Path != "csv.time")
					try(names, false, true)
				}
			}
		}
		if k.Default != "" && k.Kind != Section {
			try(defaultOf(t, &k), true, true)
		}
	}
	for _, text := range []string{
		"name: x\nfeature: [a]\n", "features: [a]\n", "name: x\nvote: {rules: a}\n", "name: x\nagents: 256\n",
		"name: x\naddressed: agent\n", "name: x\nmax_entities: 5\n",
		"name: x\ncell: {kind: gru, params: {alarm: 0.5}}\n", "name: x\ncell: {params: {alarm: 2}}\n",
		"name: x\naddressed: agent\nagents: 256\nkey: id\n", "name: x\nagents_per_group: many\n",
		"name: x\naddressed: agent\nagents: 256\ncell: {params: {bf16: 0.5}}\n",
	} {
		parser, schema := accepted(t, s, []byte(text))
		if parser == nil || schema == nil {
			t.Errorf("accepted: %s: parser %v, schema %v", text, parser, schema)
		}
	}
}

// defaultOf returns the default of a key as YAML reads it.
func defaultOf(t *testing.T, k *Key) (v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(k.Default), &v); err != nil {
		t.Fatalf("%s: default %s: %v", k.Path, k.Default, err)
	}
	return v
}

// TestDefaults: the parser fills in the defaults that are described.
func TestDefaults(t *testing.T) {
	// Their defaults apply where they are used: a specification keeps none.
	absent := []string{
		"durability", "cell.weights", "cell.neurons", "cell.inhibitory_neurons", "csv.delimiter", "csv.decimal",
		"csv.header", "csv.zone", "shards",
		"knowledge.units", "knowledge.merge", "knowledge.by", "neighbours.depth",
	}
	for _, k := range Keys() {
		if k.Default == "" || k.Kind == Section || slices.Contains(absent, k.Path) {
			continue
		}
		base := bases[string(k.Scope)]
		if base == nil {
			base = bases[""]
		}
		text, err := yaml.Marshal(base)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := swarm.Parse("x.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(spec).Elem()
		for name := range strings.SplitSeq(k.Path, ".") {
			v = fieldOf(v, name)
		}
		if got := yamlValue(v); got != k.Default {
			t.Errorf("%s: the default is %s, described as %s", k.Path, got, k.Default)
		}
	}
}

// blocks are the YAML blocks of a document.
var blocks = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// specifications returns the specifications of examples and documents by their places.
func specifications(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"../../../docs/spec.md, jobs": []byte("name: x\naddressed: agent\nagents: 256\n" +
		"vote: {candidates: [a, b]}\non_decision: [any -> submit page, a -> submit log]\njobs:\n" +
		"  page: {pool: cpu, kind: k, spec: {tries: 3, at: 0.5, texts: ['$(winner)', 'x: #y']}, tenant: acme}\n" +
		"  log: {pool: gpu, kind: k, lane: low, max_attempts: 1, result_ttl_s: 60}\n")}
	for _, pattern := range []string{"../../../docs/*.md", "../../../examples/*/*.yaml", "../../../README.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, ".yaml") {
				all[file] = text
				continue
			}
			for i, m := range blocks.FindAllSubmatch(text, -1) {
				if bytes.HasPrefix(m[1], []byte("name:")) {
					all[fmt.Sprintf("%s, block %d", file, i)] = m[1]
				}
			}
		}
	}
	return all
}

// TestExamples: the parser and the schema accept the specifications of examples and documents, and
// each parses to the same from what Explain makes of it.
func TestExamples(t *testing.T) {
	s := compiled(t)
	found := specifications(t)
	if len(found) < 10 {
		t.Errorf("%d specifications in examples and documents", len(found))
	}
	for place, text := range found {
		file, _, _ := strings.Cut(place, ",")
		folder, err := os.OpenRoot(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		spec, err := swarm.ParseIn(folder.FS(), place, text)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		if _, err := accepted(t, s, text); err != nil {
			t.Errorf("%s: the schema refuses it: %v", place, err)
		}
		explained, err := Explain(spec, text)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		again, err := swarm.ParseIn(folder.FS(), "explained", []byte(explained))
		if err != nil {
			t.Errorf("%s: what Explain returns is refused: %v\n%s", place, err, explained)
			continue
		}
		// The parameters of the cell are all written out.
		spec.Cell.StepFile = ""
		spec.Cell.Params, again.Cell.Params = nil, nil
		if !reflect.DeepEqual(spec, again) {
			t.Errorf("%s: Explain changes it to\n%s", place, explained)
		}
	}
}
