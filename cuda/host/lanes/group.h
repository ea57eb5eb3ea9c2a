// The frame of the generated routines: a loop over the agents of a group. SI, DI, DX and R9 have the
// first words of the call, CX and BX the place of the agents in two arrays. A body of instructions stands
// between the label agents and GROUP_NEXT.

#define GROUP_BEGIN \
	MOVQ c+0(FP), AX; \
	MOVQ 0(AX), SI; \
	MOVQ 8(AX), DI; \
	MOVQ 16(AX), DX; \
	MOVQ 24(AX), R9; \
	XORQ CX, CX; \
	XORQ BX, BX

// A step is bytes of an array.
#define GROUP_NEXT(bytes) \
	ADDQ $bytes, CX; \
	ADDQ R9, BX; \
	CMPQ CX, DX; \
	JLT agents; \
	VZEROUPPER; \
	RET
