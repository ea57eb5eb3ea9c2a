package memory

import "fmt"

// Text writes a number of bytes for a message, rounded to three digits: 512 B, 1.5 GiB.
func Text(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n) / (1 << 10)
	i := 0
	for v >= 1000 && i < len(units)-1 {
		v /= 1 << 10
		i++
	}
	return fmt.Sprintf("%.3g %ciB", v, units[i])
}
