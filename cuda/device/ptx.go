package device

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ptxClasses are the kinds that a parameter of a type of PTX may have. PTX does not tell a pointer
// from a number of 64 bits, unless the parameter is marked with .ptr.
var ptxClasses = map[string][]Kind{
	".u64": {KindBuffer, KindUint64}, ".s64": {KindBuffer, KindUint64}, ".b64": {KindBuffer, KindUint64},
	".u32": {KindUint32, KindInt32}, ".s32": {KindUint32, KindInt32}, ".b32": {KindUint32, KindInt32, KindFloat32},
	".f32": {KindFloat32},
}

// CheckPTX returns an error of class ErrInvalidArgument unless a text is PTX with an entry of a name
// whose .param list takes arguments of these kinds. Only the list is read; the driver checks the
// rest.
func CheckPTX(name, text string, params []Param) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("entry %q of PTX: %s: %w", name, fmt.Sprintf(format, args...), ErrInvalidArgument)
	}
	switch {
	case !symbol.MatchString(name):
		return bad("not the name of a C function")
	case strings.Contains(text, "\x00"):
		return bad("a byte of 0 in the text")
	}
	plain := blankComments(text)
	if !ptxVersion.MatchString(plain) {
		return bad("the text has no directive .version: is it PTX?")
	}
	head := regexp.MustCompile(`\.entry\s+` + name + `\s*(?:\(([^)]*)\)|[^\w$(])`)
	m := head.FindStringSubmatch(plain)
	if m == nil {
		return bad("the text has no such .entry")
	}
	var found []string
	if list := strings.TrimSpace(m[1]); list != "" {
		found = strings.Split(list, ",")
	}
	if len(found) != len(params) {
		return bad("%d parameters, %d arguments", len(found), len(params))
	}
	for i, text := range found {
		kinds, err := ptxKinds(text)
		if err != nil {
			return bad("parameter %d, %q: %v", i, strings.Join(strings.Fields(text), " "), err)
		}
		if !slices.Contains(kinds, params[i].Kind) {
			return bad("parameter %d is %q, the argument is of kind %v", i, strings.Join(strings.Fields(text), " "),
				params[i].Kind)
		}
	}
	return nil
}

var ptxVersion = regexp.MustCompile(`(?m)^\s*\.version\s+\d+\.\d+`)

// ptxKinds returns the kinds that a parameter of a .param list may have.
func ptxKinds(text string) ([]Kind, error) {
	words := strings.Fields(text)
	if len(words) < 3 || words[0] != ".param" {
		return nil, fmt.Errorf("no .param")
	}
	if strings.Contains(words[len(words)-1], "[") {
		return nil, fmt.Errorf("a struct or an array by value: pass a pointer")
	}
	for _, w := range words {
		kinds, ok := ptxClasses[w]
		if !ok {
			continue
		}
		if slices.Contains(words, ".ptr") {
			return []Kind{KindBuffer}, nil
		}
		return kinds, nil
	}
	return nil, fmt.Errorf("use pointers, integers of 32 and 64 bits and floats of 32 bits")
}
