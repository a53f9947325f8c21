package main

import (
	"go/ast"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	nodemetrics "github.com/cluster-version/cvo/pkg/node/metrics"
)

// rowsOf returns the names in the first column of a reference.
func rowsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	page, err := os.ReadFile(root + "docs/reference/" + file)
	require.NoError(t, err)
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = true
	}
	return rows
}

func TestReferenceListsEveryEventOfTheNodeStage(t *testing.T) {
	rows, values, calls := rowsOf(t, "events.md"), map[string]string{}, 0
	sections, err := read(root+"pkg/api", "Events ")
	require.NoError(t, err)
	for _, s := range sections {
		for _, c := range s.constants {
			values[c.name] = c.value
		}
	}
	require.NoError(t, sources(root+"pkg/node", func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if kind, reason := emittedBy(call); kind != "" {
					calls++
					if names := eventNames(reason); assert.Len(t, names, 1, "an event's reason is a constant of pkg/api") {
						assert.True(t, rows[values[names[0]]], "events.md does not list %s", names[0])
					}
				}
			}
			return true
		})
	}))
	assert.Positive(t, calls)
}

func TestReferenceListsEveryMetricOfTheNodeStage(t *testing.T) {
	rows, node := rowsOf(t, "metrics.md"), registered{types: map[*prometheus.Desc]string{}}
	require.NoError(t, node.Register(nodemetrics.NewPhases()))
	for _, d := range nodemetrics.Descriptions() {
		node.types[d] = "gauge"
	}
	for d := range node.types {
		assert.True(t, rows[description.FindStringSubmatch(d.String())[1]], "metrics.md does not list %s", d)
	}
}

func TestReferenceListsEveryAnnotationAndLabel(t *testing.T) {
	rows, name := rowsOf(t, "annotations.md"), regexp.MustCompile(`^[A-Z]\w*(Annotation|Label|LabelPrefix)$`)
	_, values, err := declared(root + "pkg/api")
	require.NoError(t, err)
	for constant, expr := range values {
		if name.MatchString(constant) {
			value, ok := valueOf(expr, values)
			assert.True(t, ok && rows[value], "annotations.md does not list %s", constant)
		}
	}
}
