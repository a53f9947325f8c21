package lint_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/lint"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// TestRealReleasesHaveTheKnownFindings lints two real releases. The errors were confirmed manually.
func TestRealReleasesHaveTheKnownFindings(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			files, err := source.ReadFiles(os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", version)))
			require.NoError(t, err)

			report := lint.Check(files, lint.Options{})

			count := map[string]int{}
			for _, f := range report.Findings {
				count[fmt.Sprintf("%s %s", f.Severity, f.Rule)]++
			}
			var text strings.Builder
			fmt.Fprintf(&text, "%d files, %d objects: %d errors, %d warnings, %d infos\n", report.Files, report.Objects,
				report.Totals.Errors, report.Totals.Warnings, report.Totals.Infos)
			for _, name := range slices.Sorted(maps.Keys(count)) {
				fmt.Fprintf(&text, "%s: %d\n", name, count[name])
			}
			golden.Assert(t, "real-"+version, text.String())
		})
	}
}
