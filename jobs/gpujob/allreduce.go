package gpujob

import (
	"fmt"
	"slices"
)

// MaxReduced is the largest number of arrays of a job of kind allreduce.
const MaxReduced = 64

// AllreduceSpec asks for the sum of arrays, element by element, on all devices of an agent.
type AllreduceSpec struct {
	// In are 1 to MaxReduced arrays of one type and one shape, of f32, f64, i32, i64, u32 or u64. The
	// devices share them.
	In []Array `json:"in"`
}

// Kind implements Spec.
func (*AllreduceSpec) Kind() string { return KindAllreduce }

// Check implements Spec.
func (s *AllreduceSpec) Check() error {
	if len(s.In) < 1 || len(s.In) > MaxReduced {
		return invalid("spec.in: %d arrays: use 1 to %d", len(s.In), MaxReduced)
	}
	for i := range s.In {
		a := &s.In[i]
		if err := a.checkType(fmt.Sprintf("in[%d]", i), 0, F32, F64, I32, I64, U32, U64); err != nil {
			return err
		}
		if a.Type != s.In[0].Type || !slices.Equal(a.Shape, s.In[0].Shape) {
			return invalid("spec.in[%d]: %v of %s: use the shape %v and the type %s of the first", i, []int64(a.Shape),
				a.Type, []int64(s.In[0].Shape), s.In[0].Type)
		}
	}
	return nil
}

// AllreduceOutput is the output of a job of kind allreduce.
type AllreduceOutput struct {
	// Sum has the sums: of integers modulo 2 to the bits of the type, of floats in float64 in the
	// order of the arrays, rounded once. The bits do not depend on the number of devices.
	Sum     Array  `json:"sum"`
	Devices int    `json:"devices"`         // that have added
	Route   string `json:"route,omitempty"` // nccl or host: between the devices; empty for one
	Ran
}
