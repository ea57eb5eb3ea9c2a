// Program tracing writes the answers of 300 students who do not exist, as answers.csv has them:
//
//	go run ./tracing > tracing/answers.csv
//
// A student has an ability, and gets better at a skill with each question about it. So the answers
// so far tell about the next one, which is what a model of knowledge tracing learns.
package main

import (
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
)

const (
	students = 300
	held     = 60 // the last ones have the part test
	skills   = 10
)

func main() {
	if err := write(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// write writes the table. A row is an answer: of whom, the skill of the question, whether it is
// right, both as one number (2 skill + right), and the skill of the question that follows; of the
// last answer of a student, its own.
func write(w io.Writer) error {
	r := rand.New(rand.NewPCG(7, 7))
	if _, err := fmt.Fprintln(w, "agent,skill,right,answer,item,part"); err != nil {
		return err
	}
	var difficulty [skills]float64
	for i := range difficulty {
		difficulty[i] = r.NormFloat64()
	}
	for student := range students {
		part := "train"
		if student >= students-held {
			part = "test"
		}
		ability := 0.3 + 1.2*r.NormFloat64()
		var practice [skills]float64
		var asked []int
		for len(asked) < 24 {
			skill := r.IntN(skills)
			for range 3 + r.IntN(4) {
				asked = append(asked, skill)
			}
		}
		for i, skill := range asked {
			right := 0
			if r.Float64() < 1/(1+math.Exp(difficulty[skill]-ability-practice[skill])) {
				right = 1
			}
			practice[skill] += 0.4
			next := asked[min(i+1, len(asked)-1)]
			_, err := fmt.Fprintf(w, "%d,%d,%d,%d,%d,%s\n", student, skill, right, 2*skill+right, next, part)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
