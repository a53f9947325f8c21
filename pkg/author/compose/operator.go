package compose

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
)

// ParseProgram parses an architecture and a file, such as arm64=FILE or linux/arm64=FILE.
func ParseProgram(text string) (architecture, file string, err error) {
	platform, file, ok := strings.Cut(text, "=")
	architecture = strings.TrimPrefix(platform, "linux/")
	if !ok || architecture == "" || file == "" || strings.Contains(architecture, "/") {
		return "", "", fmt.Errorf("%q is not an architecture and a file for Linux: use for example arm64=FILE", text)
	}
	return architecture, file, nil
}

// withOperator adds the operator: its manifests in this program, and the programs that the author chose.
func (in *Inputs) withOperator() (err error) {
	o := &in.chosen
	if o.AllPlatforms && len(o.Programs) == 0 {
		return contradiction("--keep-manifest-list: there is no base image: add architectures of the operator with --arch, or specify a base with --to-image-base or as %s=PULLSPEC",
			o.BaseComponent)
	}
	programs, err := o.readPrograms()
	if err != nil {
		return err
	}
	if in.Options.Operator, err = input.ReadFiles(o.Operator); err != nil {
		return err
	}
	for _, architecture := range slices.Sorted(maps.Keys(programs)) {
		// The fixed time keeps the layer of the program the same in all releases, so that nodes pull it once.
		img, err := program.Operator(program.ProjectOptions{
			Binary: programs[architecture], Certificates: program.RootCertificates(), Architecture: architecture, Created: time.Unix(0, 0),
		})
		if err != nil {
			return fmt.Errorf("for %s: %w", architecture, err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			return fmt.Errorf("for %s: %w", architecture, err)
		}
		in.Options.Programs = append(in.Options.Programs, assemble.Platform{Platform: *config.Platform(), Base: img})
	}
	return nil
}

// readPrograms reads the operator's programs, by architecture. The running program is one of them, unless the author chose another for its
// architecture, or it does not run on Linux.
func (o *Options) readPrograms() (map[string][]byte, error) {
	programs := map[string][]byte{}
	for _, architecture := range slices.Sorted(maps.Keys(o.Programs)) {
		file := o.Programs[architecture]
		binary, found, err := readProgram(file)
		switch {
		case err != nil:
			return nil, contradiction("--arch %s=%s: %w", architecture, file, err)
		case found != architecture:
			return nil, contradiction("--arch %s=%s: it is a program for %s: use --arch %s=%s", architecture, file, found, found, file)
		}
		programs[architecture] = binary
	}
	if _, replaced := programs[o.Architecture]; replaced {
		return programs, nil
	}
	file, err := o.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for the file of this program (specify a static cvo with --arch %s=FILE): %w", o.Architecture, err)
	}
	binary, architecture, err := readProgram(file)
	switch {
	case errors.Is(err, program.ErrNotLinux) && len(programs) > 0:
		return programs, nil
	case errors.Is(err, program.ErrNotLinux):
		return nil, contradiction("this cvo cannot be the operator in the release: %s: %w: add a static cvo for Linux with --arch linux/ARCH=FILE, "+
			"or omit the operator with --no-operator", file, err)
	case errors.Is(err, program.ErrDynamic):
		return nil, contradiction("this cvo cannot be the operator in the release: %s: %w, specify a static cvo with --arch linux/%s=FILE, "+
			"or omit the operator with --no-operator", file, err, o.Architecture)
	case err != nil:
		return nil, fmt.Errorf("reading this program as the operator in the release: %w", err)
	}
	programs[architecture] = binary
	return programs, nil
}

func readProgram(file string) (binary []byte, architecture string, err error) {
	if binary, err = os.ReadFile(file); err != nil {
		return nil, "", err
	}
	architecture, err = program.Architecture(binary)
	return binary, architecture, err
}
