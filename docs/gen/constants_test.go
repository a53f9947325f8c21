package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folderWith returns a folder with a Go file.
func folderWith(t *testing.T, source string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.go"), []byte("package a\n\n"+source), 0o600))
	return folder
}

func TestSectionHasARowForEachConstant(t *testing.T) {
	sections, err := read(folderWith(t, `// Others are not read.
const Other = "Other/"

// Reasons for X. They are
// few.
const (
	// ReasonA means that a<b | c. See docs/user/trust.md#roots.
	ReasonA = "A"
	// ReasonB is the
	// second.
	ReasonB = "B"
	// A list "x|y", run `+"`cvo a|b <c>`"+`.
	ReasonC = "C"
	// ReasonD is a sum.
	ReasonD = Other + "D"
)
`), "Reasons for ")
	require.NoError(t, err)
	require.Len(t, sections, 1)
	assert.Equal(t, "## Reasons for X\n\nThey are few.\n\n| reason | meaning |\n|---|---|\n"+
		`| `+"`A`"+` | A\<b \| c. See [trust](../user/trust.md#roots). |`+"\n"+
		"| `B` | The second. |\n| `C` | A list \"x\\|y\", run `cvo a\\|b <c>`. |\n| `Other/D` | A sum. |\n\n", sections[0].table("| reason | meaning |", none))
}

func TestConstantsNeedAComment(t *testing.T) {
	_, err := read(folderWith(t, "// Reasons for X.\nconst (\n\tReasonA = \"A\"\n)\n"), "Reasons for ")
	require.EqualError(t, err, "ReasonA has no comment")
	_, err = read(folderWith(t, "// Reasons for X.\nconst (\n\t// ReasonA is computed.\n\tReasonA = len(Other)\n)\n"), "Reasons for ")
	require.EqualError(t, err, "ReasonA is no single literal, nor a sum of constants of its folder")
	_, err = read(folderWith(t, "// Others.\nconst A = 1\n"), "Reasons for ")
	require.ErrorContains(t, err, "has no constants with a comment that begins with")
}
