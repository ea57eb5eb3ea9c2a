package userfile

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/number"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// NodeColumn is the column of the number of a knowledge node.
const NodeColumn = "node"

// LessonColumns returns the columns of a file of values for knowledge nodes: node, unit0 and so on.
func LessonColumns(spec *swarm.Spec) []string {
	all := []string{NodeColumn}
	for k := range spec.Knowledge.Units {
		all = append(all, "unit"+strconv.Itoa(k))
	}
	return all
}

// ReadLessons reads a file of values for knowledge nodes, with LessonColumns. It reads and checks the
// whole file. A node is in one row. Errors of the rows are of the input.
func ReadLessons(path string, spec *swarm.Spec) (l swarms.Learn, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, command.Usage("--input: %v", err)
	}
	defer f.Close()
	columns, d := LessonColumns(spec), dialectOf(path, spec)
	nodes, rows := spec.KnowledgeNodes(), map[uint32]int{}
	add := func(line int, get func(column string) (string, bool)) error {
		bad := func(column, text, want string) error {
			return jobs.Errorf(jobs.CodeInput, "%s:%d: column %s: %q is not %s", path, line, column, text, want)
		}
		text, ok := get(NodeColumn)
		id, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil || id >= uint64(nodes) {
			return bad(NodeColumn, text, fmt.Sprintf("a node, 0 to %d", nodes-1))
		}
		node := uint32(id)
		if before, twice := rows[node]; twice {
			return bad(NodeColumn, text, fmt.Sprintf("another node than that of line %d: use a row for each", before))
		}
		rows[node] = line
		l.Nodes = append(l.Nodes, node)
		for _, name := range columns[1:] {
			text, ok := get(name)
			written, problem := d.Number(text)
			if problem != "" {
				return bad(name, text, "a number: it "+problem)
			}
			v, err := number.Float(written, 32)
			if !ok || err != nil || !(math.Abs(v) <= 1) {
				return bad(name, text, "a number from -1 to 1, which units hold")
			}
			l.Values = append(l.Values, float32(v))
		}
		return nil
	}
	if d == nil {
		err = eachObject(path, f, add)
	} else {
		err = eachRecord(path, f, d, columns, add)
	}
	return l, err
}
