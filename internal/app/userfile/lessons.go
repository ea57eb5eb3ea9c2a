package userfile

import (
	"fmt"
	"math"
	"strconv"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
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

// ReadLessons reads a file of values for knowledge nodes, with LessonColumns. It reads and checks
// the whole file. A node is in one row. Errors of the rows are of the input.
func ReadLessons(path string, spec *swarm.Spec) (l swarms.Learn, err error) {
	columns, lines := LessonColumns(spec), map[uint32]int{}
	err = eachRow(path, spec, columns, func(r row) error {
		node, err := r.id(NodeColumn, int64(spec.KnowledgeNodes()), "a node")
		if err != nil {
			return err
		}
		if before, twice := lines[node]; twice {
			text, _ := r.get(NodeColumn)
			return r.bad(NodeColumn, text, fmt.Sprintf("another node than in line %d: use a row for each", before))
		}
		lines[node] = r.line
		l.Nodes = append(l.Nodes, node)
		for _, name := range columns[1:] {
			v, err := r.number(name, 32, "a number from -1 to 1, which units hold",
				func(v float64) bool { return math.Abs(v) <= 1 })
			if err != nil {
				return err
			}
			l.Values = append(l.Values, float32(v))
		}
		return nil
	})
	return l, err
}
