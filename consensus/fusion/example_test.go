package fusion_test

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda"
)

// Five agents tell two nodes what they know. One of them is broken, one belongs to nobody.
func Example() {
	ctx := context.Background()
	dev, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	f, err := fusion.New(dev, fusion.Options{Nodes: 2, Dim: 8, Agents: 5})
	if err != nil {
		panic(err)
	}
	defer f.Close()
	rows := make([]float32, 5*8)
	for i, v := range []float32{1, 4, 5, float32(math.NaN()), 9} {
		rows[8*i] = v // the first of the eight values of each
	}
	if err := f.Members([]uint32{0, 0, 1, 1, fusion.None}); err != nil {
		panic(err)
	}
	if err := f.Embed(rows); err != nil {
		panic(err)
	}
	if err := f.Weigh([]uint32{2 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16}); err != nil {
		panic(err)
	}
	report, err := f.Fuse(ctx)
	if err != nil {
		panic(err)
	}
	means := make([]float32, 2*8)
	if err := f.Means(ctx, means); err != nil {
		panic(err)
	}
	fmt.Printf("%+v\n", report)
	fmt.Println(means[0], means[8])
	// Output:
	// {Fused:3 Refused:1 Nobody:1 Invalid:0 Weight:262144}
	// 2 5
}
