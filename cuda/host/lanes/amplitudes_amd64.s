#include "textflag.h"

// The sign of each real part.
DATA ·realSigns+0(SB)/8, $0x0000000080000000
DATA ·realSigns+8(SB)/8, $0x0000000080000000
DATA ·realSigns+16(SB)/8, $0x0000000080000000
DATA ·realSigns+24(SB)/8, $0x0000000080000000
GLOBL ·realSigns(SB), RODATA|NOPTR, $32

// The number 1, four times.
DATA ·complexOnes+0(SB)/8, $0x000000003f800000
DATA ·complexOnes+8(SB)/8, $0x000000003f800000
DATA ·complexOnes+16(SB)/8, $0x000000003f800000
DATA ·complexOnes+24(SB)/8, $0x000000003f800000
GLOBL ·complexOnes(SB), RODATA|NOPTR, $32

#define BEGIN \
	MOVQ c+0(FP), AX  \
	MOVQ 0(AX), SI    \
	MOVQ 8(AX), DI    \
	MOVQ 16(AX), R8   \
	MOVQ 24(AX), CX

// A number, and its imaginary part times i.
#define NUMBER(at, re, im) \
	VBROADCASTSS at(R8), re   \
	VBROADCASTSS at+4(R8), im \
	VXORPS ·realSigns(SB), im, im

// to = re*x + im*turned, a product of complex numbers. turned is x with the parts exchanged.
#define PRODUCT(re, im, x, turned, to) \
	VMULPS re, x, to \
	VFMADD231PS im, turned, to

// to = to + re*x + im*turned
#define ADD_PRODUCT(re, im, x, turned, to) \
	VFMADD231PS re, x, to \
	VFMADD231PS im, turned, to

// func densePairs(c *pairsCall)
TEXT ·densePairs(SB), NOSPLIT, $0-8
	BEGIN
	NUMBER(0, Y8, Y9)
	NUMBER(8, Y10, Y11)
	NUMBER(16, Y12, Y13)
	NUMBER(24, Y14, Y15)

dense:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VPERMILPS $0xB1, Y0, Y2
	VPERMILPS $0xB1, Y1, Y3
	PRODUCT(Y8, Y9, Y0, Y2, Y4)
	ADD_PRODUCT(Y10, Y11, Y1, Y3, Y4)
	PRODUCT(Y12, Y13, Y0, Y2, Y5)
	ADD_PRODUCT(Y14, Y15, Y1, Y3, Y5)
	VMOVUPS Y4, (SI)
	VMOVUPS Y5, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ dense
	VZEROUPPER
	RET

// func realPairs(c *pairsCall)
TEXT ·realPairs(SB), NOSPLIT, $0-8
	BEGIN
	VBROADCASTSS 0(R8), Y8
	VBROADCASTSS 4(R8), Y9
	VBROADCASTSS 8(R8), Y10
	VBROADCASTSS 12(R8), Y11

real:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	PRODUCT(Y8, Y9, Y0, Y1, Y4)
	PRODUCT(Y11, Y10, Y1, Y0, Y5)
	VMOVUPS Y4, (SI)
	VMOVUPS Y5, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ real
	VZEROUPPER
	RET

// func mixedPairs(c *pairsCall)
TEXT ·mixedPairs(SB), NOSPLIT, $0-8
	BEGIN
	VBROADCASTSS 0(R8), Y8
	VBROADCASTSS 4(R8), Y9
	VXORPS ·realSigns(SB), Y9, Y9
	VBROADCASTSS 8(R8), Y10
	VXORPS ·realSigns(SB), Y10, Y10
	VBROADCASTSS 12(R8), Y11

mixed:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VPERMILPS $0xB1, Y0, Y2
	VPERMILPS $0xB1, Y1, Y3
	PRODUCT(Y8, Y9, Y0, Y3, Y4)
	PRODUCT(Y11, Y10, Y1, Y2, Y5)
	VMOVUPS Y4, (SI)
	VMOVUPS Y5, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ mixed
	VZEROUPPER
	RET

// func scale(c *pairsCall)
TEXT ·scale(SB), NOSPLIT, $0-8
	BEGIN
	NUMBER(0, Y8, Y9)

scaling:
	VMOVUPS (SI), Y0
	VPERMILPS $0xB1, Y0, Y2
	PRODUCT(Y8, Y9, Y0, Y2, Y4)
	VMOVUPS Y4, (SI)
	ADDQ $32, SI
	DECQ CX
	JNZ scaling
	VZEROUPPER
	RET

// func multiply(c *pairsCall)
TEXT ·multiply(SB), NOSPLIT, $0-8
	BEGIN
	VMOVUPS ·complexOnes(SB), Y7

multiplying:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VPERMILPS $0xB1, Y0, Y2
	VMOVSLDUP Y1, Y8
	VMOVSHDUP Y1, Y9
	VXORPS ·realSigns(SB), Y9, Y9
	PRODUCT(Y8, Y9, Y0, Y2, Y4)
	VCMPPS $0, Y7, Y1, Y3       // parts that are the ones of 1
	VPERMILPS $0xB1, Y3, Y5
	VANDPS Y5, Y3, Y3
	VBLENDVPS Y3, Y0, Y4, Y4
	VMOVUPS Y4, (SI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ multiplying
	VZEROUPPER
	RET

// func tradeOnes(c *pairsCall)
TEXT ·tradeOnes(SB), NOSPLIT, $0-8
	BEGIN

ones:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VUNPCKLPD Y1, Y0, Y2
	VUNPCKHPD Y1, Y0, Y3
	VMOVUPS Y2, (SI)
	VMOVUPS Y3, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ ones
	VZEROUPPER
	RET

// func tradeTwos(c *pairsCall)
TEXT ·tradeTwos(SB), NOSPLIT, $0-8
	BEGIN

twos:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VPERM2F128 $0x20, Y1, Y0, Y2
	VPERM2F128 $0x31, Y1, Y0, Y3
	VMOVUPS Y2, (SI)
	VMOVUPS Y3, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ twos
	VZEROUPPER
	RET

// func tradeMany(c *pairsCall)
TEXT ·tradeMany(SB), NOSPLIT, $0-8
	BEGIN
	MOVQ 32(AX), BX
	MOVQ BX, R9
	SHLQ $5, R9
	ADDQ R9, SI

blocks:
	MOVQ BX, DX

block:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VMOVUPS Y1, (SI)
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ DX
	JNZ block
	ADDQ R9, SI
	ADDQ R9, DI
	DECQ CX
	JNZ blocks
	VZEROUPPER
	RET

// func exchange(c *pairsCall)
TEXT ·exchange(SB), NOSPLIT, $0-8
	BEGIN

exchanging:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VMOVUPS Y1, (SI)
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ exchanging
	VZEROUPPER
	RET

// func pivotPairs(c *pairsCall)
TEXT ·pivotPairs(SB), NOSPLIT, $0-8
	BEGIN
	VBROADCASTSS 0(R8), Y8

pivots:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VMOVAPS Y0, Y2
	VFMSUB213PS Y1, Y8, Y0 // t*x - y
	VFMADD231PS Y8, Y1, Y2 // t*y + x
	VMOVUPS Y0, (SI)
	VMOVUPS Y2, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ pivots
	VZEROUPPER
	RET
