package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileManifestsAreRejectedInTime parses expensive input: as the only document, after a valid document, and as JSON.
//
//threat:deep-nesting deep JSON
//threat:huge-documents-many many objects
//threat:objects-above-1 an object of 1.5 MB
func TestHostileManifestsAreRejectedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	files := map[string]string{
		"deep JSON":                        `{"a":` + strings.Repeat(`{"a":`, fixture.Often(700_000)),
		"a list of JSON in JSON":           `{"kind":"List","apiVersion":"v1","items":[` + strings.Repeat(`{},`, fixture.Often(1_000_000)) + `{}]}`,
		"lists in lists":                   strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 10_000),
		"annotations that are not strings": "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  annotations: {" + manyKeys(fixture.Often(100_000)) + "}\n",
		"many documents":                   strings.Repeat("---\n", fixture.Often(2_000_000)),
		"many objects":                     strings.Repeat("apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n", fixture.Often(50_000)),
		"an object of 1.5 MB":              object("a", "x: "+strings.Repeat("y", 3<<19)),
		"an object of 1.5 MB as XML":       "<" + strings.Repeat("a", 3<<19) + ">",
		"a file of 8 MiB and a byte":       strings.Repeat("#", 8<<20+1),
	}
	for name, text := range fixture.HostileYAML() {
		files[name] = object("a") + text
		files[name+", second"] = object("a") + "---\n" + text
	}
	for name, text := range files {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				all, err := manifest.Parse(file, []byte(text), manifest.Limits{})
				if err == nil {
					for _, m := range all {
						assert.LessOrEqual(t, len(m.Raw), 3<<19)
					}
					return
				}
				assert.Empty(t, all)
				var one *manifest.Error
				require.ErrorAs(t, err, &one)
				for line := range strings.SplitSeq(err.Error(), "\n") {
					assert.Less(t, len(line), 2000)
				}
				assert.LessOrEqual(t, strings.Count(err.Error(), "\n"), 100)
			})
		})
	}
}

// manyKeys returns the entries of a map on one line.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1, ", i)
	}
	return b.String()
}
