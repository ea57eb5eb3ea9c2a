package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

type site struct {
	pkg    *pkg
	file   string
	fn     string // the function around it
	line   int
	change string
	// The mutant is prefix and suffix around the text from start to end. %d is its number.
	start, end     int
	prefix, suffix string
}

func (s *site) String() string { return fmt.Sprintf("%s:%d: %s: %s", s.file, s.line, s.fn, s.change) }

// key names a site without its line, which changes with every edit of the file.
func (s *site) key() string { return fmt.Sprintf("%s %s: %s", s.file, s.fn, s.change) }

type finder struct {
	p    *pkg
	file string
	fn   string
	// results are the results of the innermost function.
	results []*ast.FieldList
}

func (p *pkg) find(f *ast.File, path string) {
	for _, d := range f.Decls {
		fd, ok := d.(*ast.FuncDecl)
		if !ok || fd.Body == nil {
			continue
		}
		x := &finder{p: p, file: path, fn: fd.Name.Name, results: []*ast.FieldList{fd.Type.Results}}
		if fd.Recv != nil {
			x.fn = strings.TrimPrefix(types.ExprString(fd.Recv.List[0].Type), "*") + "." + x.fn
		}
		x.block(fd.Body)
	}
}

func (x *finder) add(n ast.Node, change, prefix, suffix string) {
	at := x.p.fset.Position(n.Pos())
	x.p.sites = append(x.p.sites, &site{
		pkg: x.p, file: x.file, fn: x.fn, line: at.Line, change: change,
		start: at.Offset, end: x.p.fset.Position(n.End()).Offset, prefix: prefix, suffix: suffix,
	})
}

func (x *finder) text(n ast.Node) string {
	src := x.p.text[x.file][x.p.fset.Position(n.Pos()).Offset:x.p.fset.Position(n.End()).Offset]
	t := strings.Join(strings.Fields(string(src)), " ")
	if len(t) > 90 {
		t = t[:60] + " ... " + t[len(t)-25:]
	}
	return t
}

func (x *finder) block(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			x.results = append(x.results, n.Type.Results)
			x.block(n.Body)
			x.results = x.results[:len(x.results)-1]
			return false
		case *ast.BlockStmt:
			x.statements(n.List)
		case *ast.CaseClause:
			x.statements(n.Body)
			for _, e := range n.List {
				if x.isBool(e) {
					x.condition(e)
				}
			}
		case *ast.CommClause:
			x.statements(n.Body)
		case *ast.IfStmt:
			x.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				x.bounds(n.Cond)
			}
		case *ast.ReturnStmt:
			x.returned(n)
		case *ast.CallExpr:
			x.call(n)
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "make" {
				return false // capacities
			}
		case *ast.GenDecl:
			return n.Tok != token.CONST && n.Tok != token.TYPE
		case *ast.ArrayType, *ast.StructType, *ast.InterfaceType:
			return false
		}
		if e, ok := n.(ast.Expr); ok && x.constant(e) {
			return false
		}
		return true
	})
}

// unguarded matches calls that tell what happens and guard nothing, or whose lack only leaks until
// the process ends.
var unguarded = regexp.MustCompile(`(?i)^(_ = )?([\w.]*\b(log|logger|metrics|span|trace|tracer)\b|` +
	`cancel\w*\(|stop\(|idle\(|` +
	`.*\.(Stop|Lock|Unlock|RLock|RUnlock|SetAttributes|SetStatus|End|Done|Add|Wait)\(|` +
	`panic\(|close\(done\))`)

// statements makes mutants that leave a statement out.
func (x *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch n := s.(type) {
		case *ast.ExprStmt:
			if unguarded.MatchString(x.text(n)) {
				continue
			}
		case *ast.DeferStmt:
			if unguarded.MatchString(x.text(n.Call)) {
				continue
			}
			if _, is := n.Call.Fun.(*ast.FuncLit); is {
				continue // its body has mutants of its own
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE || unguarded.MatchString(x.text(n)) || x.text(n.Lhs[0]) == "_" {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt:
		default:
			continue
		}
		x.add(s, "leave out "+x.text(s), "if !mutantOn(%d) { ", " }")
	}
}

func (x *finder) isError(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ && b.Op != token.EQL {
		return false
	}
	t := x.p.info.TypeOf(b.X)
	return t != nil && t.String() == "error" && x.text(b.Y) == "nil"
}

func (x *finder) isBool(e ast.Expr) bool {
	t := x.p.info.TypeOf(e)
	if t == nil || x.p.info.Types[e].Value != nil {
		return false
	}
	b, ok := t.(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// condition makes mutants of a condition: negated, each of its terms left out, and its bounds
// moved. A check whether a callee failed is only negated: to leave it out is no mutant of the code
// that guards but of that which passes on.
func (x *finder) condition(e ast.Expr) {
	if !x.isBool(e) {
		return
	}
	x.add(e, "negate "+x.text(e), "mutantOn(%d) != (", ")")
	x.terms(e, token.ILLEGAL)
	x.bounds(e)
}

// terms leaves out terms of a condition; op is the operator around them.
func (x *finder) terms(e ast.Expr, op token.Token) {
	switch b := e.(type) {
	case *ast.ParenExpr:
		x.terms(b.X, op)
		return
	case *ast.BinaryExpr:
		if b.Op == token.LAND || b.Op == token.LOR {
			x.terms(b.X, b.Op)
			x.terms(b.Y, b.Op)
			return
		}
	}
	if x.isError(e) || !x.isBool(e) {
		return
	}
	if op != token.LOR {
		x.add(e, "take as true "+x.text(e), "(mutantOn(%d) || (", "))")
	}
	if op != token.LAND {
		x.add(e, "take as false "+x.text(e), "(!mutantOn(%d) && (", "))")
	}
}

// bounds moves the bounds of comparisons by one.
func (x *finder) bounds(e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if _, lit := n.(*ast.FuncLit); lit {
			return false
		}
		if !ok || !pure(b.X) || !pure(b.Y) {
			return true
		}
		l, r := x.raw(b.X), x.raw(b.Y)
		switch b.Op {
		case token.LSS:
			x.add(b, x.text(b)+" as <=", "(mutantOn(%d) && "+l+" == "+r+" || ", ")")
		case token.GTR:
			x.add(b, x.text(b)+" as >=", "(mutantOn(%d) && "+l+" == "+r+" || ", ")")
		case token.LEQ:
			x.add(b, x.text(b)+" as <", "(!(mutantOn(%d) && "+l+" == "+r+") && ", ")")
		case token.GEQ:
			x.add(b, x.text(b)+" as >", "(!(mutantOn(%d) && "+l+" == "+r+") && ", ")")
		}
		return true
	})
}

func (x *finder) raw(n ast.Node) string {
	from, to := x.p.fset.Position(n.Pos()).Offset, x.p.fset.Position(n.End()).Offset
	text := strings.Join(strings.Fields(string(x.p.text[x.file][from:to])), " ")
	return "(" + strings.ReplaceAll(text, "%", "%%") + ")"
}

func pure(e ast.Expr) bool {
	ok := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, is := n.Fun.(*ast.Ident)
			ok = ok && is && (f.Name == "len" || f.Name == "cap" || f.Name == "int" || f.Name == "int64" ||
				f.Name == "uint64" || f.Name == "uint32" || f.Name == "min" || f.Name == "max")
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.FuncLit:
			ok = false
		}
		return ok
	})
	return ok
}

// returned makes mutants of results: an error that this code makes becomes nil, a truth its
// opposite.
func (x *finder) returned(n *ast.ReturnStmt) {
	list := x.results[len(x.results)-1]
	if list == nil {
		return
	}
	var of []ast.Expr
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			of = append(of, f.Type)
		}
	}
	if len(of) != len(n.Results) {
		return
	}
	for i, e := range n.Results {
		t, ok := of[i].(*ast.Ident)
		switch {
		case !ok:
		case t.Name == "error" && x.makes(e):
			x.add(e, "return nil for "+x.text(e), "mutantError(%d, ", ")")
		case t.Name == "bool" && x.isBool(e):
			x.condition(e)
		}
	}
}

// makes reports whether an expression makes an error, in place of passing one on.
func (x *finder) makes(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		f := x.text(e.Fun)
		return regexp.MustCompile(`(?i)(errorf|errors\.New|refus|bad|wrong|damaged|fault|inputError)`).MatchString(f) &&
			!regexp.MustCompile(`%w`).MatchString(x.text(e)) ||
			regexp.MustCompile(`(?i)errorf`).MatchString(f) && regexp.MustCompile(`\bErr[A-Z]`).MatchString(x.raw(e))
	case *ast.SelectorExpr:
		return strings.HasPrefix(e.Sel.Name, "Err")
	case *ast.Ident:
		return strings.HasPrefix(e.Name, "Err") || strings.HasPrefix(e.Name, "err") && len(e.Name) > 3 &&
			e.Name[3] >= 'A' && e.Name[3] <= 'Z'
	}
	return false
}

// errorMakers are no calls to skip: what they make is.
var errorMakers = regexp.MustCompile(`(?i)(errorf|^errors\.|^context\.Cause|\.Err$|ctx\.Err|refus|retry$|` +
	`inputError|ioError|fullDisk|classed|^jobs\.(Retry|AsError)|^wrong|^bad)`)

// call makes a mutant that skips a call whose only result is an error, as if it had succeeded.
func (x *finder) call(n *ast.CallExpr) {
	t := x.p.info.TypeOf(n)
	if t == nil || t.String() != "error" || errorMakers.MatchString(x.text(n.Fun)) || x.p.info.Types[n.Fun].IsType() {
		return
	}
	if _, lit := n.Fun.(*ast.FuncLit); lit {
		return
	}
	x.add(n, "skip "+x.text(n), "mutantSkip(%d, func() error { return ", " })")
}

// constant makes mutants of an integer constant, and reports whether e is any constant. Only the
// whole of a constant expression is changed.
func (x *finder) constant(e ast.Expr) bool {
	tv, ok := x.p.info.Types[e]
	if !ok || tv.Value == nil {
		return false
	}
	b, ok := tv.Type.(*types.Basic)
	if !ok || b.Info()&types.IsInteger == 0 || b.Info()&types.IsUntyped != 0 {
		return true
	}
	if v := tv.Value.ExactString(); v == "0" && b.Info()&types.IsUnsigned != 0 {
		x.add(e, x.text(e)+" + 1", "mutantPlus["+b.Name()+"](%d, ", ", 1)")
		return true
	}
	x.add(e, x.text(e)+" + 1", "mutantPlus["+b.Name()+"](%d, ", ", 1)")
	x.add(e, x.text(e)+" - 1", "mutantMinus["+b.Name()+"](%d, ", ", 1)")
	return true
}
