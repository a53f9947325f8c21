package cli_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWarningsAreWrittenByStreams finds warnings that Streams.Warnf does not write. They could control the user's terminal, because parts of a
// warning may come from a release, a cluster or a registry.
func TestWarningsAreWrittenByStreams(t *testing.T) {
	files, calls := 0, 0
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		parsed := token.NewFileSet()
		file, err := parser.ParseFile(parsed, path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.SelectorExpr); ok && call.Sel.Name == "Warnf" {
				calls++
			}
			if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
				assert.False(t, strings.HasPrefix(text.Value, `"warning: `), "%s: use Streams.Warnf", parsed.Position(text.Pos()))
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, files, 50)
	assert.Positive(t, calls)
}
