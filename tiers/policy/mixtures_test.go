package policy

import "math/rand/v2"

func mixtures(seed uint64, count int) []row {
	var rows []row
	for i := range count {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		capacity := []int{100, 300, 1000, 3000}[rng.IntN(4)]
		var trace []uint64
		name := ""
		kinds := 1 + rng.IntN(3)
		var phases []func() []uint64
		for k := range kinds {
			base := uint64(k) << 40
			if rng.IntN(3) == 0 {
				base = 0
			}
			n := capacity/2 + rng.IntN(capacity*4)
			length := capacity * (2 + rng.IntN(20))
			switch kind := rng.IntN(7); kind {
			case 0:
				z := newZipf(n*4, 0.6+rng.Float64()*0.6, rng)
				name += "zipf "
				phases = append(phases, func() []uint64 {
					var t []uint64
					for range length {
						t = append(t, base+z.next())
					}
					return t
				})
			case 1:
				name += "loop "
				phases = append(phases, func() []uint64 {
					var t []uint64
					for j := range length {
						t = append(t, base+uint64(j%n))
					}
					return t
				})
			case 2:
				name += "zigzag "
				phases = append(phases, func() []uint64 {
					var t []uint64
					for j := range length {
						m := j % (2 * n)
						if m >= n {
							m = 2*n - 1 - m
						}
						t = append(t, base+uint64(m))
					}
					return t
				})
			case 3:
				name += "scan "
				fresh := uint64(k+1) << 52
				l := length / 4
				phases = append(phases, func() []uint64 {
					var t []uint64
					for range l {
						fresh++
						t = append(t, fresh)
					}
					return t
				})
			case 4:
				name += "uniform "
				phases = append(phases, func() []uint64 {
					var t []uint64
					for range length {
						t = append(t, base+rng.Uint64N(uint64(n)))
					}
					return t
				})
			case 5: // A working set that drifts: recency.
				name += "drift "
				phases = append(phases, func() []uint64 {
					var t []uint64
					for j := range length {
						t = append(t, base+uint64(j/3)+rng.Uint64N(uint64(capacity)))
					}
					return t
				})
			case 6: // Stack distances from a heavy tail.
				name += "stack "
				var stack []uint64
				phases = append(phases, func() []uint64 {
					var t []uint64
					for range length {
						d := int(float64(capacity) * 0.3 / (rng.Float64() + 0.05))
						var p uint64
						if d < len(stack) {
							at := len(stack) - 1 - d
							p = stack[at]
							copy(stack[at:], stack[at+1:])
							stack[len(stack)-1] = p
						} else {
							p = base + 7<<44 + uint64(len(stack))
							stack = append(stack, p)
						}
						t = append(t, p)
					}
					return t
				})
			}
		}
		for len(trace) < capacity*60 {
			trace = append(trace, phases[rng.IntN(len(phases))]()...)
		}
		rows = append(rows, row{name, trace, []int{capacity}})
	}
	return rows
}
