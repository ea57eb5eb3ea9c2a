package gpujobs

import (
	"bytes"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// maxHeader is the maximum size of what a file has besides the elements, its header and other
// columns, in bytes.
const maxHeader = 1 << 20

// types are the element types by their names in .npy files and in Arrow.
var types = map[string]gpujob.Type{
	"<f4": gpujob.F32, "<f8": gpujob.F64, "<i4": gpujob.I32, "<i8": gpujob.I64, "<u4": gpujob.U32, "<u8": gpujob.U64,
	"|u1": gpujob.U8, "<u1": gpujob.U8, "float32": gpujob.F32, "float64": gpujob.F64, "int32": gpujob.I32,
	"int64": gpujob.I64, "uint32": gpujob.U32, "uint64": gpujob.U64, "uint8": gpujob.U8,
}

// decode returns the elements of an input of format npy or arrow. The errors are of code invalid.
func decode(i *input, data []byte) ([]byte, error) {
	var of string
	var shape []int64
	var elements []byte
	if i.of.Format == gpujob.FormatNPY {
		a, err := numpy.Read(bytes.NewReader(data), i.of.Size())
		if err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.%s: %v", i.field, err)
		}
		of, shape, elements = a.Type, a.Shape, a.Data
		if len(shape) == 0 {
			shape = []int64{1} // a scalar
		}
	} else {
		n, err := batch.ReadNumbers(data, i.of.Column)
		if err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.%s: %v", i.field, err)
		}
		of, shape, elements = n.Type, n.Shape, n.Data
	}
	if types[of] != i.of.Type || !slices.Equal(shape, []int64(i.of.Shape)) {
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec.%s: the content is %v of %s: type and shape say %v of %s",
			i.field, shape, of, []int64(i.of.Shape), i.of.Type)
	}
	return elements, nil
}
