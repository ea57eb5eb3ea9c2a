#include "textflag.h"

// Eight vectors of products are added to eight partial sums, which are in registers.
#define ADD_EIGHT \
	VMOVUPS 0(R8), Y8 \
	VMOVUPS 32(R8), Y9 \
	VMOVUPS 64(R8), Y10 \
	VMOVUPS 96(R8), Y11 \
	VMOVUPS 128(R8), Y12 \
	VMOVUPS 160(R8), Y13 \
	VMOVUPS 192(R8), Y14 \
	VMOVUPS 224(R8), Y15 \
	VFMADD231PS 0(R9), Y8, Y0 \
	VFMADD231PS 32(R9), Y9, Y1 \
	VFMADD231PS 64(R9), Y10, Y2 \
	VFMADD231PS 96(R9), Y11, Y3 \
	VFMADD231PS 128(R9), Y12, Y4 \
	VFMADD231PS 160(R9), Y13, Y5 \
	VFMADD231PS 192(R9), Y14, Y6 \
	VFMADD231PS 224(R9), Y15, Y7

#define ZERO_EIGHT \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
	VXORPS Y2, Y2, Y2 \
	VXORPS Y3, Y3, Y3 \
	VXORPS Y4, Y4, Y4 \
	VXORPS Y5, Y5, Y5 \
	VXORPS Y6, Y6, Y6 \
	VXORPS Y7, Y7, Y7

#define STORE_EIGHT(at) \
	VMOVUPS Y0, at+0(BX) \
	VMOVUPS Y1, at+32(BX) \
	VMOVUPS Y2, at+64(BX) \
	VMOVUPS Y3, at+96(BX) \
	VMOVUPS Y4, at+128(BX) \
	VMOVUPS Y5, at+160(BX) \
	VMOVUPS Y6, at+192(BX) \
	VMOVUPS Y7, at+224(BX)

// Four vectors of partial sums become one of sums of four: of fours 0, 2, 4 and 6, and then 1, 3, 5 and 7.
#define FOURS(at, to) \
	VMOVUPS at(BX), Y8         \
	VMOVUPS at+64(BX), Y9      \
	VHADDPS at+32(BX), Y8, Y8  \
	VHADDPS at+96(BX), Y9, Y9  \
	VHADDPS Y9, Y8, to

// func dot(c *languageCall)
TEXT ·dot(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 0(AX), SI
	MOVQ 8(AX), DI
	MOVQ 16(AX), CX
	MOVQ 24(AX), DX
	MOVQ 32(AX), BX
	TESTQ CX, CX
	JZ rest

	// The first 64 of each 128 numbers, and then the others.
	ZERO_EIGHT
	MOVQ SI, R8
	MOVQ DI, R9
	MOVQ CX, R10

first:
	ADD_EIGHT
	ADDQ $512, R8
	ADDQ $512, R9
	DECQ R10
	JNZ first
	STORE_EIGHT(0)
	ZERO_EIGHT
	LEAQ 256(SI), R8
	LEAQ 256(DI), R9
	MOVQ CX, R10

second:
	ADD_EIGHT
	ADDQ $512, R8
	ADDQ $512, R9
	DECQ R10
	JNZ second
	STORE_EIGHT(256)

rest:
	TESTQ DX, DX
	JZ tree
	SHLQ $9, CX
	ADDQ CX, SI
	ADDQ CX, DI
	MOVQ BX, R8

vector:
	VMOVUPS (SI), Y8
	VMOVUPS (R8), Y9
	VFMADD231PS (DI), Y8, Y9
	VMOVUPS Y9, (R8)
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, R8
	DECQ DX
	JNZ vector

tree:
	FOURS(0, Y0)
	FOURS(128, Y1)
	FOURS(256, Y2)
	FOURS(384, Y3)
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VADDPS Y1, Y0, Y0
	VPERMILPS $0x4E, Y0, Y1
	VADDPS Y1, Y0, Y0 // fours 4 apart
	VPERMILPS $0xB1, Y0, Y1
	VADDPS Y1, Y0, Y0 // 2 apart
	VEXTRACTF128 $1, Y0, X1
	VADDSS X1, X0, X0 // 1 apart
	VMOVSS X0, 40(AX)
	VZEROUPPER
	RET

// func score(c *languageCall)
TEXT ·score(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 0(AX), SI
	MOVQ 8(AX), DI
	MOVQ 24(AX), CX
	VXORPS Y0, Y0, Y0

scores:
	VMOVUPS (SI), Y1
	VFMADD231PS (DI), Y1, Y0
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ scores
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VPERMILPS $0x4E, X0, X1
	VADDPS X1, X0, X0
	VPERMILPS $0xB1, X0, X1
	VADDSS X1, X0, X0
	VMOVSS X0, 40(AX)
	VZEROUPPER
	RET

// func addScaled(c *languageCall)
TEXT ·addScaled(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	MOVQ 0(AX), SI
	MOVQ 8(AX), DI
	MOVQ 24(AX), CX
	VBROADCASTSS 40(AX), Y0

scaled:
	VMOVUPS (SI), Y1
	VFMADD231PS (DI), Y0, Y1
	VMOVUPS Y1, (SI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ scaled
	VZEROUPPER
	RET
