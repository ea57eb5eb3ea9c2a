package pagestore

import "encoding/binary"

// shuffleBytes transposes src, elements of elem bytes each, into dst: first every element's byte 0,
// then every byte 1, and so on. A tail shorter than an element is copied behind. dst and src have
// one length and do not overlap.
func shuffleBytes(dst, src []byte, elem int) {
	n := len(src) / elem
	switch elem {
	case 4:
		shuffle4(dst, src, n)
	default:
		for b := range elem {
			plane := dst[b*n : (b+1)*n]
			for i := range plane {
				plane[i] = src[i*elem+b]
			}
		}
	}
	copy(dst[n*elem:], src[n*elem:])
}

func unshuffleBytes(dst, src []byte, elem int) {
	n := len(src) / elem
	switch elem {
	case 4:
		unshuffle4(dst, src, n)
	default:
		for b := range elem {
			plane := src[b*n : (b+1)*n]
			for i, v := range plane {
				dst[i*elem+b] = v
			}
		}
	}
	copy(dst[n*elem:], src[n*elem:])
}

// shuffle4 is shuffleBytes for float32, two elements at a time: one word is read and cut into bytes
// in registers.
func shuffle4(dst, src []byte, n int) {
	p0, p1, p2, p3 := dst[:n], dst[n:2*n], dst[2*n:3*n], dst[3*n:4*n]
	i := 0
	for ; i+2 <= n; i += 2 {
		v := binary.LittleEndian.Uint64(src[i*4:])
		p0[i], p1[i], p2[i], p3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		p0[i+1], p1[i+1], p2[i+1], p3[i+1] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
	}
	for ; i < n; i++ {
		p0[i], p1[i], p2[i], p3[i] = src[i*4], src[i*4+1], src[i*4+2], src[i*4+3]
	}
}

func unshuffle4(dst, src []byte, n int) {
	p0, p1, p2, p3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
	i := 0
	for ; i+2 <= n; i += 2 {
		lo := uint64(p0[i]) | uint64(p1[i])<<8 | uint64(p2[i])<<16 | uint64(p3[i])<<24
		hi := uint64(p0[i+1]) | uint64(p1[i+1])<<8 | uint64(p2[i+1])<<16 | uint64(p3[i+1])<<24
		binary.LittleEndian.PutUint64(dst[i*4:], lo|hi<<32)
	}
	for ; i < n; i++ {
		dst[i*4], dst[i*4+1], dst[i*4+2], dst[i*4+3] = p0[i], p1[i], p2[i], p3[i]
	}
}
