#include "textflag.h"

#define SYS_mmap 9

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVQ	$·handler(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// handler is called by the kernel on the signal stack, with the C ABI: DI is the signal, SI the
// siginfo, DX the ucontext. It writes only registers that a C function need not keep. The handler of
// the Go runtime gets the registers and the stack as the kernel gave them.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	CMPL	8(SI), $2	// si_code, BUS_ADRERR
	JNE	forward
	MOVQ	168(DX), AX	// RIP
	CMPQ	AX, ·start(SB)
	JCS	forward
	CMPQ	AX, ·end(SB)
	JCC	forward
	PUSHQ	DI
	PUSHQ	SI
	PUSHQ	DX
	MOVQ	16(SI), DI	// si_addr
	MOVQ	·pageSize(SB), SI
	MOVQ	SI, AX
	NEGQ	AX
	ANDQ	AX, DI
	MOVL	$3, DX	// PROT_READ|PROT_WRITE
	MOVL	$0x32, R10	// MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS
	MOVQ	$-1, R8
	XORL	R9, R9
	MOVL	$SYS_mmap, AX
	SYSCALL
	POPQ	DX
	POPQ	SI
	POPQ	DI
	CMPQ	AX, $0xfffffffffffff001
	JCC	forward	// an errno
	LOCK
	INCQ	·count(SB)
	RET
forward:
	MOVQ	·next(SB), AX
	JMP	AX
