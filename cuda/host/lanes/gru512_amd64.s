#include "textflag.h"

// LOGISTIC replaces X by fmath.Logistic.At of it. Z16 to Z22 have constants; A and B are lost.
#define LOGISTIC(X, A, B) \
	VMULPS X, X, A             \
	VMOVAPS Z18, B             \
	VFMADD213PS Z17, A, B      \
	VFMADD213PS Z16, A, B      \
	VMULPS B, X, X             \
	VADDPS Z20, A, B           \
	VFMADD213PS Z19, A, B      \
	VDIVPS B, Z22, A           \
	VFMADD213PS Z21, A, X      \
	VMAXPS Z25, X, X           \
	VMINPS Z22, X, X

// UNIT ends the step of a unit with the sums R, Z, M and N, the unit at 0(R9), and the constants.
#define UNIT(R, Z, M, N, A, B) \
	VCVTDQ2PS R, R             \
	VCVTDQ2PS Z, Z             \
	VCVTDQ2PS M, M             \
	VCVTDQ2PS N, N             \
	LOGISTIC(R, A, B)          \
	LOGISTIC(Z, A, B)          \
	VFMADD231PS M, R, N        \
	LOGISTIC(N, A, B)          \
	VFMADD213PS Z24, Z23, N    \
	VMOVUPS (R9), A            \
	VSUBPS N, A, A             \
	VFMADD231PS A, Z, N        \
	VMOVUPS N, (R10)           \
	ADDQ $64, R9               \
	ADDQ $64, R10

// func stepUnits512(c *call)
//
// As stepUnits, two units at a time, with AVX-512 and its sums of products.
TEXT ·stepUnits512(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 0(AX), R9   // units
	MOVQ 16(AX), R10 // next
	MOVQ 24(AX), DI  // weights
	MOVQ 32(AX), R8  // bias
	MOVQ 40(AX), R11 // table
	MOVQ 48(AX), BX  // hidden
	MOVQ BX, CX
	SHRQ $1, CX
	IMUL3Q $24, BX, R12 // bytes of the weights of a unit
	VBROADCASTSS 0(R11), Z16
	VBROADCASTSS 32(R11), Z17
	VBROADCASTSS 64(R11), Z18
	VBROADCASTSS 96(R11), Z19
	VBROADCASTSS 128(R11), Z20
	VBROADCASTSS 160(R11), Z21 // half
	VBROADCASTSS 192(R11), Z22 // one
	VBROADCASTSS 224(R11), Z23 // two
	VBROADCASTSS 256(R11), Z24 // minus one
	VPXORQ Z25, Z25, Z25

units:
	MOVQ 8(AX), SI
	LEAQ (DI)(R12*1), R13
	VPBROADCASTD 0(R8), Z0
	VPBROADCASTD 4(R8), Z1
	VPBROADCASTD 12(R8), Z2
	VPBROADCASTD 8(R8), Z3
	VPBROADCASTD 16(R8), Z4
	VPBROADCASTD 20(R8), Z5
	VPBROADCASTD 28(R8), Z6
	VPBROADCASTD 24(R8), Z7
	MOVQ BX, DX

ofUnits:
	VMOVDQU32 (SI), Z8
	VPDPWSSD.BCST 0(DI), Z8, Z0
	VPDPWSSD.BCST 4(DI), Z8, Z1
	VPDPWSSD.BCST 8(DI), Z8, Z2
	VPDPWSSD.BCST 0(R13), Z8, Z4
	VPDPWSSD.BCST 4(R13), Z8, Z5
	VPDPWSSD.BCST 8(R13), Z8, Z6
	ADDQ $64, SI
	ADDQ $12, DI
	ADDQ $12, R13
	DECQ DX
	JNZ ofUnits
	MOVQ BX, DX

ofInputs:
	VMOVDQU32 (SI), Z8
	VPDPWSSD.BCST 0(DI), Z8, Z0
	VPDPWSSD.BCST 4(DI), Z8, Z1
	VPDPWSSD.BCST 8(DI), Z8, Z3
	VPDPWSSD.BCST 0(R13), Z8, Z4
	VPDPWSSD.BCST 4(R13), Z8, Z5
	VPDPWSSD.BCST 8(R13), Z8, Z7
	ADDQ $64, SI
	ADDQ $12, DI
	ADDQ $12, R13
	DECQ DX
	JNZ ofInputs

	UNIT(Z0, Z1, Z2, Z3, Z8, Z9)
	UNIT(Z4, Z5, Z6, Z7, Z10, Z11)
	MOVQ R13, DI // behind the weights of both
	ADDQ $32, R8
	DECQ CX
	JNZ units
	VZEROUPPER
	RET
