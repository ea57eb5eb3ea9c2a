#include "textflag.h"

#define SYS_mmap 222

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVD	$·handler(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// handler is called by the kernel on the signal stack, with the C ABI: R0 is the signal, R1 the
// siginfo, R2 the ucontext. It writes only registers that a C function need not keep, and R27, which
// the assembler takes for addresses and which is put back. The handler of the Go runtime gets the
// registers and the stack as the kernel gave them.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	R27, R9
	MOVW	8(R1), R10	// si_code
	CMPW	$2, R10	// BUS_ADRERR
	BNE	forward
	MOVD	440(R2), R10	// PC
	MOVD	·start(SB), R11
	CMP	R11, R10
	BLO	forward
	MOVD	·end(SB), R11
	CMP	R11, R10
	BHS	forward
	MOVD	R0, R12
	MOVD	R1, R13
	MOVD	R2, R14
	MOVD	16(R1), R0	// si_addr
	MOVD	·pageSize(SB), R1
	NEG	R1, R10
	AND	R10, R0
	MOVD	$3, R2	// PROT_READ|PROT_WRITE
	MOVD	$0x32, R3	// MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS
	MOVD	$-1, R4
	MOVD	$0, R5
	MOVD	$SYS_mmap, R8
	SVC
	CMN	$4095, R0
	BCS	failed	// an errno
	MOVD	$·count(SB), R10
again:
	LDAXR	(R10), R11
	ADD	$1, R11
	STLXR	R11, (R10), R15
	CBNZW	R15, again
	MOVD	R9, R27
	RET
failed:
	MOVD	R12, R0
	MOVD	R13, R1
	MOVD	R14, R2
forward:
	MOVD	·next(SB), R10
	MOVD	R9, R27
	JMP	(R10)
