package terminal

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBytesAreRoundedToUnits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1000 << 10: "1.0 MiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB",
	} {
		assert.Equal(t, want, Bytes(n))
	}
}
