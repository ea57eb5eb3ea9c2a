package kernels

// Philox is the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC'11): ten rounds that turn a 128-bit counter into 128 random bits
// under a 64-bit key. It has no state, so the numbers of an agent depend on its key and counter
// alone, and are the same on every device.
func Philox(key [2]uint32, counter [4]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // the paper's multipliers
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // Weyl increments of the key: golden ratio, sqrt(3)-1
	)
	c := counter
	for range 10 {
		p0, p1 := uint64(m0)*uint64(c[0]), uint64(m1)*uint64(c[2])
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ c[3] ^ key[1], uint32(p0)}
		key[0] += w0
		key[1] += w1
	}
	return c
}
