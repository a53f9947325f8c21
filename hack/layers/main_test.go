package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const listing = `
{"ImportPath":"example.com/m/cmd/m","Module":{"Path":"example.com/m"},"Imports":["os","example.com/m/pkg/engine"]}
{"ImportPath":"example.com/m/pkg/engine","Module":{"Path":"example.com/m"},"Imports":["example.com/m/pkg/engine/gate","example.com/m/pkg/engine/walk"]}
{"ImportPath":"example.com/m/pkg/engine/gate","Module":{"Path":"example.com/m"},"Imports":["example.com/m/pkg/api"]}
{"ImportPath":"example.com/m/pkg/engine/walk","Module":{"Path":"example.com/m"},"Imports":["example.com/m/pkg/api"]}
{"ImportPath":"example.com/m/pkg/api","Module":{"Path":"example.com/m"},"Imports":["fmt"]}
`

func TestDrawingPutsPackagesAboveTheirImports(t *testing.T) {
	packages, err := parse(strings.NewReader(listing))
	require.NoError(t, err)
	require.NoError(t, check(packages))
	assert.Equal(t, "     3  cmd/m\n     2  engine\n     1  engine/{gate,walk}\n     0  api\n", draw(layers(packages)))
}

func TestCheckRejectsUpwardImports(t *testing.T) {
	for _, tt := range []struct {
		name     string
		packages []pkg
		want     string
	}{
		{
			"a package that imports its parent",
			[]pkg{{"pkg/engine/gate", []string{"pkg/engine"}}, {"pkg/engine", []string{"pkg/engine/walk"}}},
			"pkg/engine/gate imports its parent pkg/engine: move the shared code to a package below both",
		},
		{
			"folders that import each other",
			[]pkg{{"pkg/engine/gate", []string{"pkg/view/a"}}, {"pkg/view/b", []string{"pkg/engine/walk"}}},
			"folders import each other: pkg/engine → pkg/view → pkg/engine",
		},
		{
			"folders in a circle",
			[]pkg{{"pkg/cli/a", []string{"pkg/engine/b"}}, {"pkg/engine/b", []string{"pkg/oci/c"}}, {"pkg/oci/d", []string{"pkg/view/e"}}, {"pkg/view/f", []string{"pkg/engine/g"}}},
			"folders import each other: pkg/engine → pkg/oci → pkg/view → pkg/engine",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.EqualError(t, check(tt.packages), tt.want)
		})
	}
}

func TestCheckLimitsTheImportsOfAPackage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		imports int
		want    string
	}{
		{"pkg/author/lint", 14, ""},
		{"pkg/author/lint", 15, "pkg/author/lint imports 15 packages of this module, and may import 14: divide it by subject"},
		{"pkg/operator", 30, ""},
		{"pkg/operator/engines", 30, ""},
		{"pkg/operator/sources", 15, "pkg/operator/sources imports 15 packages of this module, and may import 14: divide it by subject"},
		{"pkg/clusterversion", 30, ""},
		{"pkg/node/cli", 30, ""},
		{"pkg/cli", 30, ""},
		{"pkg/cli/release/create", 30, ""},
		{"pkg/cli/release/create", 31, "pkg/cli/release/create imports 31 packages of this module, and may import 30: divide it by subject"},
	} {
		t.Run(fmt.Sprintf("%s with %d", tt.name, tt.imports), func(t *testing.T) {
			p := pkg{name: tt.name}
			for i := range tt.imports {
				p.imports = append(p.imports, fmt.Sprintf("internal/%d", i))
			}
			err := check([]pkg{p})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestFoldersAreDrawnAsPackages(t *testing.T) {
	packages, err := parse(strings.NewReader(listing))
	require.NoError(t, err)
	assert.Equal(t, "     2  cmd/m\n     1  engine\n     0  api\n", draw(layers(folders(packages))))
}

func TestPackagesOfTheNodeStageMayBeAboveAndBelowAnotherFolder(t *testing.T) {
	packages := []pkg{
		{"pkg/view", []string{"pkg/node/pool"}},
		{"pkg/cli/command", nil},
		{"pkg/cli/nodes", []string{"pkg/view"}},
		{"pkg/node/pool", nil},
		{"pkg/node/cli", []string{"pkg/cli/command"}},
	}
	require.NoError(t, check(packages))
	assert.Equal(t, "     3  node/cli\n     2  cli\n     1  view\n     0  node/pool\n", draw(layers(folders(packages))))
}

func TestInsertReplacesTheDrawing(t *testing.T) {
	page := "# Title\n\n" + begin + "\nold\n\n" + end + "\nmore\n"
	got, err := insert([]byte(page), "new\n")
	require.NoError(t, err)
	assert.Equal(t, "# Title\n\n"+begin+"\nnew\n\n"+end+"\nmore\n", string(got))
	_, err = insert([]byte("# Title\n"), "new\n")
	require.ErrorContains(t, err, "the page must contain")
}
