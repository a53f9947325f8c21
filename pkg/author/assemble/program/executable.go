package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrNotLinux rejects a file that is not a program for Linux.
	ErrNotLinux = errors.New("it is not a program for Linux")
	// ErrDynamic rejects a program that an image without libraries cannot start.
	ErrDynamic = errors.New("it is dynamically linked, and the image has no libraries: build with CGO_ENABLED=0")
)

// machines are the architectures of Go, by the names that ELF files have for them.
var machines = map[machine]string{
	{elf.EM_386, elf.ELFDATA2LSB}:       "386",
	{elf.EM_AARCH64, elf.ELFDATA2LSB}:   "arm64",
	{elf.EM_ARM, elf.ELFDATA2LSB}:       "arm",
	{elf.EM_LOONGARCH, elf.ELFDATA2LSB}: "loong64",
	{elf.EM_PPC64, elf.ELFDATA2LSB}:     "ppc64le",
	{elf.EM_RISCV, elf.ELFDATA2LSB}:     "riscv64",
	{elf.EM_S390, elf.ELFDATA2MSB}:      "s390x",
	{elf.EM_X86_64, elf.ELFDATA2LSB}:    "amd64",
}

type machine struct {
	number elf.Machine
	order  elf.Data
}

// Architecture returns the architecture of a static program for Linux, as in GOARCH. It returns ErrNotLinux for another file, and
// ErrDynamic for a program with an ELF interpreter.
func Architecture(binary []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotLinux, err)
	}
	// Linkers for Linux leave the field for the system empty. Those for the BSDs do not.
	if file.OSABI != elf.ELFOSABI_NONE && file.OSABI != elf.ELFOSABI_LINUX || file.Type != elf.ET_EXEC && file.Type != elf.ET_DYN {
		return "", fmt.Errorf("%w, but of type %s for %s", ErrNotLinux, file.Type, file.OSABI)
	}
	architecture, ok := machines[machine{file.Machine, file.Data}]
	if !ok {
		return "", fmt.Errorf("it is a program for %s, which cvo does not support", file.Machine)
	}
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", ErrDynamic
	}
	return architecture, nil
}
