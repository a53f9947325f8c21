//go:build linux

#include "textflag.h"

// By the C calling convention of clock_gettime(clock, *timespec): DI is the clock, SI the time. The frame of 16 bytes, with
// the return address and BP, keeps the stack aligned.
TEXT ·shifted(SB), NOSPLIT, $16-0
	MOVQ	DI, 0(SP)
	MOVQ	SI, 8(SP)
	MOVQ	·original(SB), AX
	CALL	AX
	MOVQ	0(SP), DI
	MOVQ	8(SP), SI
	CMPL	DI, $0 // CLOCK_REALTIME
	JNE	done
	ADDQ	$600, 0(SI) // seconds
done:
	RET

DATA ·shiftedAddress+0(SB)/8, $·shifted(SB)
GLOBL ·shiftedAddress(SB), NOPTR, $8
