// Package lanes steps several agents at a time with the vector instructions of the processor, with
// the bits of package fmath: recurrent units and leaky integrators of agent-addressed swarms (GRU,
// Leaky), the agents of a group (Group), whose routines internal/stepgen writes, and sums of
// products (AddProduct).
//
// Recurrent units are stepped by sixteen. A value of these agents is a row of Width numbers, one of
// each agent, and values follow each other: value k of agent a is at k*Width + a. Numbers of fixed
// point are a word: the high byte, extended, in its lower half, and the low byte, extended, in its
// upper half.
package lanes

import "unsafe"

// Width is the number of agents that are computed together.
const Width = 16

// GRU are the weights of gated recurrent units that all agents share, in the order in which Step
// needs them. One goroutine uses it.
type GRU struct {
	hidden     int
	candidates int
	bf16       bool
	wide       bool    // by stepUnits512
	bias       []int32 // [hidden][4]: reset, update, of inputs, of units
	weights    []int32 // [hidden][2*hidden][3]: reset, update, new; pairs of a number and its high byte
	readBias   []int32 // [candidates]
	readout    []int32 // [candidates][hidden]
	table      [constants]vector
	units      []float32 // [2*hidden][Width]: the units, and then the inputs
	pairs      []int32   // [2*hidden][Width]
	best       [Width]int32
}

// vector is a constant, once for each lane of a register.
type vector [8]uint32

// The constants of a GRU, by their place in its table.
const (
	logistic0   = iota // to logistic4: the coefficients of fmath.Logistic
	half        = logistic0 + 5
	one         = half + 1
	two         = half + 2
	minusOne    = half + 3
	unitScale   = half + 4 // a unit by this, plus magic, has its number in the last bits
	inputScale  = half + 5
	magic       = half + 6
	roundHigh   = half + 7 // added before the high byte is cut off
	lowHalf     = half + 8
	halfMinus   = half + 9 // of a bf16
	lowBit      = half + 10
	highHalf    = half + 11
	mostNegated = half + 12 // the least int32
	constants   = half + 13
)

// call has the arguments of a routine in assembly. Their places are known there.
type call struct {
	units    unsafe.Pointer // 0
	pairs    unsafe.Pointer // 8
	next     unsafe.Pointer // 16
	weights  unsafe.Pointer // 24
	bias     unsafe.Pointer // 32
	table    unsafe.Pointer // 40
	hidden   int            // 48
	best     unsafe.Pointer // 56
	choices  int            // 64
	from, to unsafe.Pointer // 72, 80
	fromStep int            // 88
	toStep   int            // 96
	scale    unsafe.Pointer // 104
	count    int            // 112
}
