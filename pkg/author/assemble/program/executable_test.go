package program_test

import (
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestArchitectureOfStaticPrograms(t *testing.T) {
	for machine, want := range map[elf.Machine]string{
		elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_PPC64: "ppc64le", elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x",
	} {
		t.Run("is "+want, func(t *testing.T) {
			got, err := program.Architecture(fixture.StaticProgram(machine, "cvo"))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

func TestArchitectureRejectsProgramsThatAnImageCannotRun(t *testing.T) {
	forBSD := fixture.StaticProgram(elf.EM_X86_64, "cvo")
	forBSD[elf.EI_OSABI] = byte(elf.ELFOSABI_FREEBSD)
	object := fixture.StaticProgram(elf.EM_X86_64, "cvo")
	object[16] = byte(elf.ET_REL)
	for name, c := range map[string]struct {
		file []byte
		want error
		text string
	}{
		"rejects a program with an interpreter": {fixture.DynamicProgram(elf.EM_X86_64), program.ErrDynamic, "build with CGO_ENABLED=0"},
		"rejects a program for macOS":           {[]byte("\xcf\xfa\xed\xfe\x07\x00\x00\x01"), program.ErrNotLinux, "not a program for Linux"},
		"rejects an empty file":                 {nil, program.ErrNotLinux, "not a program for Linux"},
		"rejects a program for FreeBSD":         {forBSD, program.ErrNotLinux, "ELFOSABI_FREEBSD"},
		"rejects an object file":                {object, program.ErrNotLinux, "ET_REL"},
		"rejects an unknown machine":            {fixture.StaticProgram(elf.EM_SPARCV9, ""), nil, "EM_SPARCV9"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := program.Architecture(c.file)
			require.ErrorContains(t, err, c.text)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
		})
	}
}
