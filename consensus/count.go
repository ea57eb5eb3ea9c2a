package consensus

import (
	"encoding/binary"
	"math/bits"
)

// planeCandidates is the number of candidates that the bit planes of countPlanes tell apart.
const planeCandidates = 8

// countBytes adds the number of each byte value to by. Four tables in turn keep runs of one value
// from waiting for the increment before them, which would cost three times as much for ballots that
// are all equal.
func countBytes(by *[MaxCandidates]uint64, data []byte) {
	var tables [4][MaxCandidates]uint32
	const most = 1 << 33 // 2^31 a table, so that none overflows
	for len(data) > most {
		countBytes(by, data[:most])
		data = data[most:]
	}
	for ; len(data) >= 8; data = data[8:] {
		w := binary.LittleEndian.Uint64(data)
		tables[0][byte(w)]++
		tables[1][byte(w>>8)]++
		tables[2][byte(w>>16)]++
		tables[3][byte(w>>24)]++
		tables[0][byte(w>>32)]++
		tables[1][byte(w>>40)]++
		tables[2][byte(w>>48)]++
		tables[3][byte(w>>56)]++
	}
	for _, v := range data {
		tables[0][v]++
	}
	for v := range by {
		by[v] += uint64(tables[0][v]) + uint64(tables[1][v]) + uint64(tables[2][v]) + uint64(tables[3][v])
	}
}

const (
	lowHalf  = 0x0F0F0F0F0F0F0F0F
	highHalf = 0xF0F0F0F0F0F0F0F0
	evenBits = 0x5555555555555555
	oddBits  = 0xAAAAAAAAAAAAAAAA
	evenTwos = 0x3333333333333333
	oddTwos  = 0xCCCCCCCCCCCCCCCC
)

// countPlanes adds the numbers of ballots 0..7 and Abstain to by, and counts all other ballots
// under one of their values. This is right for up to eight candidates, where the others are
// invalid.
//
// 64 ballots at a time become four words that hold bit 0, 1, 2 and 3 of each ballot; a count is the
// population of a word that combines them. A byte whose upper five bits are all equal is told from
// the others by its low four: below 8 a candidate, 0xFF an abstention, 0xF8..0xFE invalid. Chunks
// with other bytes, which only invalid ballots have, are counted by value.
func countPlanes(by *[MaxCandidates]uint64, data []byte) {
	var counts [planeCandidates]uint64
	var abstain, others uint64
	for ; len(data) >= 64; data = data[64:] {
		chunk := data[:64]
		w0, w1 := binary.LittleEndian.Uint64(chunk), binary.LittleEndian.Uint64(chunk[8:])
		w2, w3 := binary.LittleEndian.Uint64(chunk[16:]), binary.LittleEndian.Uint64(chunk[24:])
		w4, w5 := binary.LittleEndian.Uint64(chunk[32:]), binary.LittleEndian.Uint64(chunk[40:])
		w6, w7 := binary.LittleEndian.Uint64(chunk[48:]), binary.LittleEndian.Uint64(chunk[56:])
		mixed := (w0 ^ w0<<1) | (w1 ^ w1<<1) | (w2 ^ w2<<1) | (w3 ^ w3<<1) |
			(w4 ^ w4<<1) | (w5 ^ w5<<1) | (w6 ^ w6<<1) | (w7 ^ w7<<1)
		if mixed&highHalf != 0 {
			for _, v := range chunk {
				by[v]++
			}
			continue
		}
		// Halves of two bytes in one, then four bits of four words into a word for each bit.
		a, b := w0&lowHalf|w1<<4&highHalf, w2&lowHalf|w3<<4&highHalf
		c, d := w4&lowHalf|w5<<4&highHalf, w6&lowHalf|w7<<4&highHalf
		ab0, ab1 := a&evenBits|b<<1&oddBits, a>>1&evenBits|b&oddBits
		cd0, cd1 := c&evenBits|d<<1&oddBits, c>>1&evenBits|d&oddBits
		p0, p2 := ab0&evenTwos|cd0<<2&oddTwos, ab0>>2&evenTwos|cd0&oddTwos
		p1, p3 := ab1&evenTwos|cd1<<2&oddTwos, ab1>>2&evenTwos|cd1&oddTwos
		low, high := ^(p2 | p3), p2&^p3
		counts[0] += uint64(bits.OnesCount64(low &^ (p0 | p1)))
		counts[1] += uint64(bits.OnesCount64(low & p0 &^ p1))
		counts[2] += uint64(bits.OnesCount64(low & p1 &^ p0))
		counts[3] += uint64(bits.OnesCount64(low & p0 & p1))
		counts[4] += uint64(bits.OnesCount64(high &^ (p0 | p1)))
		counts[5] += uint64(bits.OnesCount64(high & p0 &^ p1))
		counts[6] += uint64(bits.OnesCount64(high & p1 &^ p0))
		counts[7] += uint64(bits.OnesCount64(high & p0 & p1))
		abstain += uint64(bits.OnesCount64(p0 & p1 & p2 & p3))
		others += uint64(bits.OnesCount64(p3))
	}
	for _, v := range data {
		by[v]++
	}
	for c, n := range counts {
		by[c] += n
	}
	by[Abstain] += abstain
	by[Abstain-1] += others - abstain
}
