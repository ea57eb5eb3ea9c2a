package lanes

import (
	"unsafe"

	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// ProductRows and ProductColumns are the sums that AddProduct makes together: as many as the
// registers hold.
const (
	ProductRows    = 4
	ProductColumns = 16
)

// productCall has the arguments of addProduct.
type productCall struct {
	a, b  unsafe.Pointer // 0, 8
	terms int            // 16
	sums  unsafe.Pointer // 24
	step  int            // 32, bytes
}

// AddProduct adds a product of two matrices to ProductRows rows of ProductColumns sums, which begin
// step numbers after each other. a has ProductRows numbers for each term and b ProductColumns.
// Terms are added in their order, each rounded once, with the same bits on every processor.
func AddProduct(a, b, sums []float32, step int) {
	terms := len(a) / ProductRows
	if terms == 0 {
		return
	}
	_, _ = b[terms*ProductColumns-1], sums[(ProductRows-1)*step+ProductColumns-1]
	if Available() {
		addProduct(&productCall{
			unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), terms, unsafe.Pointer(&sums[0]), 4 * step,
		})
		return
	}
	addProductPlain(a, b, sums, step)
}

// addProductPlain is the twin of addProduct.
func addProductPlain(a, b, sums []float32, step int) {
	for x := range ProductRows {
		for y := range ProductColumns {
			s := sums[x*step+y]
			for l := range len(a) / ProductRows {
				s = fmath.FMA(a[l*ProductRows+x], b[l*ProductColumns+y], s)
			}
			sums[x*step+y] = s
		}
	}
}
