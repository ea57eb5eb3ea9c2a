package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// nearKeys is the number of keys that are named where one is missing.
const nearKeys = 3

// parseKey returns the key that a text of the form COLUMN=VALUE,... names. The columns may be in
// any order, and each must be there once. For a single column the text may be the value alone.
func parseKey(text string, columns []string) (string, error) {
	values := make([]string, len(columns))
	given := make([]bool, len(columns))
	example := strings.Join(columns, "=…,") + "=…"
	for rest := text; ; {
		name, after, ok := strings.Cut(rest, "=")
		i := slices.Index(columns, strings.TrimSpace(name))
		if !ok || i < 0 {
			if len(columns) == 1 {
				return text, nil
			}
			return "", fmt.Errorf("write it as %s", example)
		}
		if given[i] {
			return "", fmt.Errorf("column %s is named twice", columns[i])
		}
		given[i] = true
		if prefix, err := strconv.QuotedPrefix(after); err == nil {
			if values[i], err = strconv.Unquote(prefix); err != nil {
				return "", err
			}
			rest = after[len(prefix):]
		} else {
			value, end := after, len(after)
			if at := strings.IndexByte(after, ','); at >= 0 && len(columns) > 1 {
				value, end = after[:at], at
			}
			values[i], rest = strings.TrimSpace(value), after[end:]
		}
		if rest == "" {
			break
		}
		if rest[0] != ',' {
			return "", fmt.Errorf("write a comma between two columns, as in %s", example)
		}
		rest = rest[1:]
	}
	if i := slices.Index(given, false); i >= 0 {
		return "", fmt.Errorf("column %s is missing: write it as %s", columns[i], example)
	}
	return rows.JoinKey(values), nil
}

func quote(name string, several bool) string {
	if several {
		return "(" + name + ")"
	}
	return strconv.Quote(name)
}

// matching returns the groups of up to limit entities whose names have a text, in the order of
// Search, and counts all of them in n.
func (d *Directory) matching(text string, limit int, n *int) []int {
	text = strings.ToLower(text)
	var ranks [3][]int
	for g, key := range d.known.Keys() {
		name := strings.ToLower(rows.EntityName(key))
		if key == "" || !strings.Contains(name, text) {
			continue
		}
		*n++
		rank := 2
		if name == text {
			rank = 0
		} else if strings.HasPrefix(name, text) {
			rank = 1
		}
		if len(ranks[rank]) < limit {
			ranks[rank] = append(ranks[rank], g)
		}
	}
	all := slices.Concat(ranks[:]...)
	return all[:min(limit, len(all))]
}

// longName bounds the bytes of a name that are compared for a distance.
const longName = 64

// nearest returns the groups of up to limit entities by the edit distance of their names to a text,
// the nearest first. A name whose distance exceeds half of the longer text is not near.
func (d *Directory) nearest(text string, limit int) []int {
	type near struct{ group, distance int }
	var best []near
	want := []byte(strings.ToLower(text))
	want = want[:min(len(want), longName)]
	var row []int
	for g, key := range d.known.Keys() {
		if key == "" { // the group is free
			continue
		}
		name := []byte(strings.ToLower(rows.EntityName(key)))
		name = name[:min(len(name), longName)]
		most := max(len(name), len(want)) / 2
		if len(best) == limit {
			most = min(most, best[limit-1].distance-1)
		}
		var distance int
		if distance, row = changes(want, name, most, row); distance > most {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, distance, func(n near, d int) int {
			return cmp.Or(cmp.Compare(n.distance, d), -1) // after its equals
		})
		best = slices.Insert(best, at, near{g, distance})
		best = best[:min(limit, len(best))]
	}
	groups := make([]int, len(best))
	for i, n := range best {
		groups[i] = n.group
	}
	return groups
}

// changes returns the edit distance of a and b in bytes, or any number above most if it exceeds
// most. row is memory of an earlier call, which it returns.
func changes(a, b []byte, most int, row []int) (int, []int) {
	if diff := len(a) - len(b); most < 0 || diff > most || -diff > most {
		return most + 1, row
	}
	row = row[:0]
	for j := range len(b) + 1 {
		row = append(row, j)
	}
	for i := range a {
		corner, least := row[0], i+1
		row[0] = i + 1
		for j := range b {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
			least = min(least, cost)
		}
		if least > most {
			return most + 1, row
		}
	}
	return row[len(b)], row
}
