package celltest

import "github.com/exoswarm/exoswarm/gpuagents/edges"

// OpinionAgent is the state of an agent of Opinion.
type OpinionAgent struct {
	Opinion float32
	Loud    uint8
	Heard   uint32
}

// StepOpinion is a tick of Opinion over the links of rows, whose number counts from 0.
func StepOpinion(rows *edges.Rows, all []OpinionAgent, seed, tick uint64) []OpinionAgent {
	const trust, doubt = float32(0.25), float32(0.05)
	next := make([]OpinionAgent, len(all))
	for id, s := range all {
		row := rows.Columns[rows.Offsets[id]:rows.Offsets[id+1]]
		var sum, weighted, most, least float32
		var loud, heard uint32
		for i, other := range row {
			o, weight := all[other], float32(1)
			if rows.Weights != nil {
				weight = float32(rows.Weights[rows.Offsets[id]+uint64(i)]) / edges.WeightOne
			}
			sum += o.Opinion
			weighted += float32(o.Opinion * weight)
			if i == 0 {
				most, least = o.Opinion, o.Opinion
			}
			most, least = max(most, o.Opinion), min(least, o.Opinion)
			if o.Loud != 0 {
				loud++
			}
			heard += o.Heard
		}
		draw := Number(seed, 0, uint32(id), tick+1)
		mean := float32(0)
		if len(row) > 0 {
			mean = sum / float32(len(row))
		}
		to := mean + float32(doubt*weighted) - float32(0.001*sum)
		if len(row) == 0 {
			to = s.Opinion
		}
		to = to + float32(float32(0.125*(most-least))*(draw-0.5))
		n := OpinionAgent{
			Opinion: s.Opinion + float32(trust*(to-s.Opinion)), Heard: s.Heard*3 + loud + heard + uint32(len(row)),
		}
		if draw < 0.25 || n.Heard%7 == 0 {
			n.Loud = 1
		}
		next[id] = n
	}
	return next
}
