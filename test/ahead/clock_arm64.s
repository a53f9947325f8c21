//go:build linux

#include "textflag.h"

// By the C calling convention of clock_gettime(clock, *timespec): R0 is the clock, R1 the time. The assembler saves and
// restores the link register.
TEXT ·shifted(SB), NOSPLIT, $24-0
	MOVD	R0, 8(RSP)
	MOVD	R1, 16(RSP)
	MOVD	·original(SB), R2
	BL	(R2)
	MOVD	8(RSP), R2
	MOVD	16(RSP), R1
	CBNZW	R2, done // CLOCK_REALTIME is 0
	MOVD	(R1), R3 // seconds
	ADD	$600, R3
	MOVD	R3, (R1)
done:
	RET

DATA ·shiftedAddress+0(SB)/8, $·shifted(SB)
GLOBL ·shiftedAddress(SB), NOPTR, $8
