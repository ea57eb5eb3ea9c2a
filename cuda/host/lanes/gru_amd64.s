#include "textflag.h"

// Places of constants in the table; package lanes has the same.
#define L0(T) 0(T)
#define L1(T) 32(T)
#define L2(T) 64(T)
#define L3(T) 96(T)
#define L4(T) 128(T)
#define HALF(T) 160(T)
#define ONE(T) 192(T)
#define TWO(T) 224(T)
#define MINUSONE(T) 256(T)
#define MAGIC(T) 352(T)
#define ROUNDHIGH(T) 384(T)
#define LOWHALF(T) 416(T)
#define HALFMINUS(T) 448(T)
#define LOWBIT(T) 480(T)
#define HIGHHALF(T) 512(T)
#define LEAST(T) 544(T)

// LOGISTIC replaces X by fmath.Logistic.At of it. T is the table, A and B are lost.
#define LOGISTIC(X, A, B, T) \
	VMULPS X, X, A                \
	VMOVUPS L2(T), B              \
	VFMADD213PS L1(T), A, B       \
	VFMADD213PS L0(T), A, B       \
	VMULPS B, X, X                \
	VADDPS L4(T), A, B            \
	VFMADD213PS L3(T), A, B       \
	VMOVUPS ONE(T), A             \
	VDIVPS B, A, A                \
	VFMADD213PS HALF(T), A, X     \
	VXORPS B, B, B                \
	VMAXPS B, X, X                \
	VMINPS ONE(T), X, X

// SUM adds the products of the pairs in Y8 and Y9 and of the weight at W to A and B.
#define SUM(W, A, B) \
	VPBROADCASTD W, Y10     \
	VPMADDWD Y8, Y10, Y11   \
	VPMADDWD Y9, Y10, Y12   \
	VPADDD Y11, A, A        \
	VPADDD Y12, B, B

// func stepUnits(c *call)
//
// The units of c.next after a step from c.units and c.pairs.
TEXT ·stepUnits(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 0(AX), R9   // units
	MOVQ 16(AX), R10 // next
	MOVQ 24(AX), DI  // weights
	MOVQ 32(AX), R8  // bias
	MOVQ 40(AX), R11 // table
	MOVQ 48(AX), BX  // hidden
	MOVQ BX, CX

unit:
	MOVQ 8(AX), SI
	VPBROADCASTD 0(R8), Y0
	VMOVDQA Y0, Y1
	VPBROADCASTD 4(R8), Y2
	VMOVDQA Y2, Y3
	VPBROADCASTD 12(R8), Y4
	VMOVDQA Y4, Y5
	VPBROADCASTD 8(R8), Y6
	VMOVDQA Y6, Y7
	MOVQ BX, DX

ofUnits:
	VMOVDQU 0(SI), Y8
	VMOVDQU 32(SI), Y9
	SUM(0(DI), Y0, Y1)
	SUM(4(DI), Y2, Y3)
	SUM(8(DI), Y4, Y5)
	ADDQ $64, SI
	ADDQ $12, DI
	DECQ DX
	JNZ ofUnits
	MOVQ BX, DX

ofInputs:
	VMOVDQU 0(SI), Y8
	VMOVDQU 32(SI), Y9
	SUM(0(DI), Y0, Y1)
	SUM(4(DI), Y2, Y3)
	SUM(8(DI), Y6, Y7)
	ADDQ $64, SI
	ADDQ $12, DI
	DECQ DX
	JNZ ofInputs

	VCVTDQ2PS Y0, Y0
	VCVTDQ2PS Y1, Y1
	VCVTDQ2PS Y2, Y2
	VCVTDQ2PS Y3, Y3
	VCVTDQ2PS Y4, Y4
	VCVTDQ2PS Y5, Y5
	VCVTDQ2PS Y6, Y6
	VCVTDQ2PS Y7, Y7
	LOGISTIC(Y0, Y8, Y9, R11)
	LOGISTIC(Y1, Y10, Y11, R11)
	LOGISTIC(Y2, Y12, Y13, R11)
	LOGISTIC(Y3, Y14, Y15, R11)
	VFMADD231PS Y4, Y0, Y6
	VFMADD231PS Y5, Y1, Y7
	LOGISTIC(Y6, Y8, Y9, R11)
	LOGISTIC(Y7, Y10, Y11, R11)
	VMOVUPS TWO(R11), Y8
	VFMADD213PS MINUSONE(R11), Y8, Y6
	VFMADD213PS MINUSONE(R11), Y8, Y7
	VMOVUPS 0(R9), Y8
	VMOVUPS 32(R9), Y9
	VSUBPS Y6, Y8, Y8
	VSUBPS Y7, Y9, Y9
	VFMADD231PS Y8, Y2, Y6
	VFMADD231PS Y9, Y3, Y7
	VMOVUPS Y6, 0(R10)
	VMOVUPS Y7, 32(R10)
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $16, R8
	DECQ CX
	JNZ unit
	VZEROUPPER
	RET

// func roundUnits(c *call)
//
// The first c.count vectors of c.next, rounded to bf16.
TEXT ·roundUnits(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 16(AX), R10
	MOVQ 40(AX), R11
	MOVQ 112(AX), CX
	VMOVDQU HALFMINUS(R11), Y4
	VMOVDQU LOWBIT(R11), Y5
	VMOVDQU HIGHHALF(R11), Y6

round:
	VMOVDQU 0(R10), Y0
	VPSRLD $16, Y0, Y1
	VPAND Y5, Y1, Y1
	VPADDD Y4, Y0, Y0
	VPADDD Y1, Y0, Y0
	VPAND Y6, Y0, Y0
	VMOVDQU Y0, 0(R10)
	ADDQ $32, R10
	DECQ CX
	JNZ round
	VZEROUPPER
	RET

// func fixPairs(c *call)
//
// c.count vectors at c.from as pairs at c.to, by c.scale.
TEXT ·fixPairs(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 72(AX), SI
	MOVQ 80(AX), DI
	MOVQ 40(AX), R11
	MOVQ 104(AX), DX
	MOVQ 112(AX), CX
	VMOVUPS (DX), Y3
	VMOVUPS MAGIC(R11), Y4
	VMOVDQU ROUNDHIGH(R11), Y5
	VMOVDQU LOWHALF(R11), Y6

fix:
	VMOVUPS 0(SI), Y0
	VFMADD213PS Y4, Y3, Y0
	VPADDD Y5, Y0, Y1
	VPSLLD $16, Y1, Y1
	VPSRAD $24, Y1, Y1
	VPAND Y6, Y1, Y1
	VPSLLD $24, Y0, Y0
	VPSRAD $8, Y0, Y0
	VPOR Y1, Y0, Y0
	VMOVDQU Y0, 0(DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ fix
	VZEROUPPER
	RET

// func choose(c *call)
//
// The candidate with the largest readout of each agent, of equal ones the first, at c.best.
TEXT ·choose(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 24(AX), DI  // weights
	MOVQ 32(AX), R8  // bias
	MOVQ 40(AX), R11
	MOVQ 48(AX), BX
	MOVQ 56(AX), R10
	MOVQ 64(AX), CX
	VMOVDQU LEAST(R11), Y2
	VMOVDQA Y2, Y3
	VPXOR Y4, Y4, Y4 // the best
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6 // the number of the candidate
	VPCMPEQD Y7, Y7, Y7
	XORQ R9, R9

candidate:
	MOVQ 8(AX), SI
	VPBROADCASTD (R8), Y0
	VMOVDQA Y0, Y1
	MOVQ BX, DX

ofReadout:
	VMOVDQU 0(SI), Y8
	VMOVDQU 32(SI), Y9
	SUM(0(DI), Y0, Y1)
	ADDQ $64, SI
	ADDQ $4, DI
	DECQ DX
	JNZ ofReadout
	VPCMPGTD Y2, Y0, Y8
	VPCMPGTD Y3, Y1, Y9
	VPBLENDVB Y8, Y0, Y2, Y2
	VPBLENDVB Y9, Y1, Y3, Y3
	VPBLENDVB Y8, Y6, Y4, Y4
	VPBLENDVB Y9, Y6, Y5, Y5
	VPSUBD Y7, Y6, Y6
	ADDQ $4, R8
	DECQ CX
	JNZ candidate
	VMOVDQU Y4, 0(R10)
	VMOVDQU Y5, 32(R10)
	VZEROUPPER
	RET

// func transpose(c *call)
//
// Eight rows of eight words at c.from, c.fromStep bytes apart, to columns at c.to, c.toStep bytes
// apart.
TEXT ·transpose(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 72(AX), SI
	MOVQ 80(AX), DI
	MOVQ 88(AX), DX
	MOVQ 96(AX), CX
	LEAQ (SI)(DX*4), R8
	LEAQ (DX)(DX*2), R9
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(DX*1), Y1
	VMOVUPS (SI)(DX*2), Y2
	VMOVUPS (SI)(R9*1), Y3
	VMOVUPS (R8), Y4
	VMOVUPS (R8)(DX*1), Y5
	VMOVUPS (R8)(DX*2), Y6
	VMOVUPS (R8)(R9*1), Y7
	VUNPCKLPS Y1, Y0, Y8
	VUNPCKHPS Y1, Y0, Y9
	VUNPCKLPS Y3, Y2, Y10
	VUNPCKHPS Y3, Y2, Y11
	VUNPCKLPS Y5, Y4, Y12
	VUNPCKHPS Y5, Y4, Y13
	VUNPCKLPS Y7, Y6, Y14
	VUNPCKHPS Y7, Y6, Y15
	VSHUFPS $0x44, Y10, Y8, Y0
	VSHUFPS $0xEE, Y10, Y8, Y1
	VSHUFPS $0x44, Y11, Y9, Y2
	VSHUFPS $0xEE, Y11, Y9, Y3
	VSHUFPS $0x44, Y14, Y12, Y4
	VSHUFPS $0xEE, Y14, Y12, Y5
	VSHUFPS $0x44, Y15, Y13, Y6
	VSHUFPS $0xEE, Y15, Y13, Y7
	VPERM2F128 $0x20, Y4, Y0, Y8
	VPERM2F128 $0x20, Y5, Y1, Y9
	VPERM2F128 $0x20, Y6, Y2, Y10
	VPERM2F128 $0x20, Y7, Y3, Y11
	VPERM2F128 $0x31, Y4, Y0, Y12
	VPERM2F128 $0x31, Y5, Y1, Y13
	VPERM2F128 $0x31, Y6, Y2, Y14
	VPERM2F128 $0x31, Y7, Y3, Y15
	LEAQ (DI)(CX*4), R8
	LEAQ (CX)(CX*2), R9
	VMOVUPS Y8, (DI)
	VMOVUPS Y9, (DI)(CX*1)
	VMOVUPS Y10, (DI)(CX*2)
	VMOVUPS Y11, (DI)(R9*1)
	VMOVUPS Y12, (R8)
	VMOVUPS Y13, (R8)(CX*1)
	VMOVUPS Y14, (R8)(CX*2)
	VMOVUPS Y15, (R8)(R9*1)
	VZEROUPPER
	RET
