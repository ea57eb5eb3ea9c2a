package device

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	symbol = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// head matches the head of a kernel at the start of a text: its name and its parameters.
	head = regexp.MustCompile(`^` + global + `\s+(?:(?:static|inline|` + attribute + `)\s+)*void\s+(?:` + attribute +
		`\s*)*([A-Za-z_][A-Za-z0-9_]*)\s*\(([^)]*)\)`)
	// qualifiers do not change what a parameter is.
	qualifiers = regexp.MustCompile(`\b(const|volatile|__restrict__|__restrict|restrict|__grid_constant__)\b`)
)

// attribute matches what a head says of launches, which has no parameters.
const attribute = `__(?:launch_bounds|cluster_dims)__\s*\([^)]*\)`

const global = "__global__"

// scalars are the C types of the kinds that are no buffer. On the platforms of CUDA that this
// project has, long has 64 bits.
var scalars = map[string]Kind{
	"unsigned": KindUint32, "unsigned int": KindUint32, "uint32_t": KindUint32,
	"int": KindInt32, "signed int": KindInt32, "int32_t": KindInt32,
	"unsigned long long": KindUint64, "unsigned long long int": KindUint64, "unsigned long": KindUint64,
	"uint64_t": KindUint64, "size_t": KindUint64,
	"float": KindFloat32,
}

// SourceError is a source that the compiler refuses, an ErrInvalidArgument.
type SourceError struct {
	// What was tried.
	What string
	// Log is the compiler's words, and the line of the source that it complains about first.
	Log string
}

// Error implements error.
func (e *SourceError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", e.What, ErrInvalidArgument, e.Log)
}

// Unwrap gives the class.
func (e *SourceError) Unwrap() error { return ErrInvalidArgument }

// ParseKernel reads the signature of a kernel out of its CUDA C++ source, and returns the source
// with the kernel declared extern "C", which gives its symbol the plain name; lines keep their
// numbers. A kernel that is a template, or that has a parameter of a type that no Kind stands for,
// is ErrInvalidArgument.
func ParseKernel(name, source string) (params []Param, code string, err error) {
	bad := func(format string, args ...any) ([]Param, string, error) {
		return nil, "", fmt.Errorf("kernel %q: %s: %w", name, fmt.Sprintf(format, args...), ErrInvalidArgument)
	}
	if !symbol.MatchString(name) {
		return bad("not the name of a C function")
	}
	plain := blankComments(source)
	at, m := findHead(plain, name)
	if m == nil {
		return bad("its source has no __global__ void %s(...)", name)
	}
	before, declared := cutLinkage(plain[:at])
	if strings.HasSuffix(before, ">") {
		return bad("a template has no symbol to launch")
	}
	if list := strings.TrimSpace(m[2]); list != "" && list != "void" {
		for i, text := range strings.Split(list, ",") {
			p, ok := parseParam(text)
			if !ok {
				return bad("parameter %d, %q, is neither a pointer nor a 32- or 64-bit integer nor a float", i,
					strings.Join(strings.Fields(text), " "))
			}
			params = append(params, p)
		}
	}
	code = source
	if !declared && !inExternC(plain[:at]) {
		code = source[:at] + `extern "C" ` + source[at:]
	}
	return params, code, nil
}

// cutLinkage returns a text without spaces and a declaration of C linkage at its end, and whether
// it had one.
func cutLinkage(before string) (rest string, declared bool) {
	rest = strings.TrimSpace(before)
	if word, found := strings.CutSuffix(rest, `"C"`); found {
		if word, found = strings.CutSuffix(strings.TrimSpace(word), "extern"); found {
			return strings.TrimSpace(word), true
		}
	}
	return rest, false
}

// findHead returns the position of the head of a kernel in a text without comments, and the head's
// parts as the expression head has them: all, the name and the parameters. It returns nil if there
// is none. A regular expression over the whole text would take milliseconds.
func findHead(plain, name string) (at int, parts []string) {
	for {
		next := strings.Index(plain[at:], global)
		if next < 0 {
			return 0, nil
		}
		at += next
		if parts = head.FindStringSubmatch(plain[at:]); parts != nil && parts[1] == name {
			return at, parts
		}
		at += len(global)
	}
}

// blankComments replaces the bytes of comments by spaces, so that positions do not change. A
// comment that does not end is none.
func blankComments(source string) string {
	var plain []byte
	for at := 0; ; {
		next := strings.IndexByte(source[at:], '/')
		if next < 0 || at+next+1 == len(source) {
			break
		}
		at += next
		end := -1
		switch source[at+1] {
		case '/':
			end = strings.IndexByte(source[at:], '\n')
			if end < 0 {
				end = len(source) - at
			}
		case '*':
			if end = strings.Index(source[at+2:], "*/"); end >= 0 {
				end += 4
			}
		}
		if end < 0 {
			at++
			continue
		}
		if plain == nil {
			plain = []byte(source)
		}
		for i := range plain[at : at+end] {
			plain[at+i] = ' '
		}
		at += end
	}
	if plain == nil {
		return source
	}
	return string(plain)
}

func inExternC(before string) bool {
	at := strings.LastIndex(before, `extern "C" {`)
	return at >= 0 && strings.Count(before[at:], "{") > strings.Count(before[at:], "}")
}

func parseParam(text string) (Param, bool) {
	if text = strings.TrimSpace(text); strings.HasSuffix(text, "[]") {
		fields := strings.Fields(strings.TrimSuffix(text, "[]"))
		return Param{Name: fields[len(fields)-1], Kind: KindBuffer}, len(fields) > 1
	}
	if at := strings.LastIndex(text, "*"); at >= 0 {
		return Param{Name: strings.TrimSpace(qualifiers.ReplaceAllString(text[at+1:], "")), Kind: KindBuffer},
			strings.Count(text, "*") == 1
	}
	words := strings.Fields(qualifiers.ReplaceAllString(text, " "))
	if kind, ok := scalars[strings.Join(words, " ")]; ok { // no name
		return Param{Kind: kind}, true
	}
	if len(words) < 2 {
		return Param{}, false
	}
	kind, ok := scalars[strings.Join(words[:len(words)-1], " ")]
	return Param{Name: words[len(words)-1], Kind: kind}, ok
}

// CheckDeclared returns ErrInvalidArgument unless the declared parameters of a kernel are the
// parameters of its source.
func CheckDeclared(name string, declared, source []Param) error {
	if len(declared) != len(source) {
		return fmt.Errorf("kernel %q: %d parameters are declared, its source has %d: %w", name, len(declared),
			len(source), ErrInvalidArgument)
	}
	for i := range declared {
		if declared[i].Kind != source[i].Kind {
			return fmt.Errorf("kernel %q: parameter %d is declared %v, its source has %v %s: %w", name, i,
				declared[i].Kind, source[i].Kind, source[i].Name, ErrInvalidArgument)
		}
	}
	return nil
}

// Bytes is what a parameter of the kind takes in the argument buffer of a launch.
func (k Kind) Bytes() int {
	if k == KindBuffer || k == KindUint64 {
		return 8
	}
	return 4
}

// TableBlock is the number of threads of a block for a launch of n threads where nothing better is
// known: small blocks spread little work over all multiprocessors, large ones need fewer of them to
// be scheduled.
func TableBlock(n int64) int {
	switch {
	case n < 10_000:
		return 128
	case n < 1_000_000:
		return 256
	}
	return 512
}

// Cover is a launch with at least one thread for each of n elements, n >= 1, in blocks of the given
// size.
func Cover(n int64, block int) Geometry {
	return Geometry{Grid: int((n + int64(block) - 1) / int64(block)), Block: block}
}
