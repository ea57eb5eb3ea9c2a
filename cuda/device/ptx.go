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

// PTXParam is a parameter of an entry of PTX.
type PTXParam struct {
	Name string
	// Text is the parameter as the .param list has it.
	Text string
	// Kinds are the kinds that an argument may have. Arguments of 64 bits may be pointers or
	// numbers.
	Kinds []Kind
}

// PTXEntries returns the names of the entries of a text, in their order.
func PTXEntries(text string) (names []string) {
	for _, m := range ptxEntry.FindAllStringSubmatch(blankComments(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// PTXParams returns the .param list of an entry. A text that is no PTX, has no such entry, or an
// entry with a parameter that no Kind has is an ErrInvalidArgument. The driver checks the rest.
func PTXParams(name, text string) ([]PTXParam, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("entry %q of PTX: %s: %w", name, fmt.Sprintf(format, args...), ErrInvalidArgument)
	}
	switch {
	case !symbol.MatchString(name):
		return nil, bad("not the name of a C function")
	case strings.Contains(text, "\x00"):
		return nil, bad("a byte of 0 in the text")
	}
	plain := blankComments(text)
	if !ptxVersion.MatchString(plain) {
		return nil, bad("the text has no directive .version: is it PTX?")
	}
	head := regexp.MustCompile(`\.entry\s+` + name + `\s*(?:\(([^)]*)\)|[^\w$(])`)
	m := head.FindStringSubmatch(plain)
	if m == nil {
		return nil, bad("the text has no such .entry")
	}
	var found []PTXParam
	if list := strings.TrimSpace(m[1]); list != "" {
		for i, text := range strings.Split(list, ",") {
			kinds, err := ptxKinds(text)
			words := strings.Fields(text)
			if err != nil {
				return nil, bad("parameter %d, %q: %v", i, strings.Join(words, " "), err)
			}
			found = append(found, PTXParam{words[len(words)-1], strings.Join(words, " "), kinds})
		}
	}
	return found, nil
}

// CheckPTX returns an error of class ErrInvalidArgument unless a text is PTX with an entry of a
// name whose .param list takes arguments of these kinds. Only the list is read; the driver checks
// the rest.
func CheckPTX(name, text string, params []Param) error {
	found, err := PTXParams(name, text)
	if err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("entry %q of PTX: %s: %w", name, fmt.Sprintf(format, args...), ErrInvalidArgument)
	}
	if len(found) != len(params) {
		return bad("%d parameters, %d arguments", len(found), len(params))
	}
	for i, p := range found {
		if !slices.Contains(p.Kinds, params[i].Kind) {
			return bad("parameter %d is %q, the argument is of kind %v", i, p.Text, params[i].Kind)
		}
	}
	return nil
}

// ptxEntry matches the head of an entry.
var ptxEntry = regexp.MustCompile(`\.entry\s+([A-Za-z_$%][\w$]*)`)

var ptxVersion = regexp.MustCompile(`(?m)^\s*\.version\s+\d+\.\d+`)

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
