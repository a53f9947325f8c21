package preview_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestLongListOfExcludedObjectsIsShortened(t *testing.T) {
	report := &preview.Report{}
	for i := range 12 {
		id := manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprintf("c%02d", i)}
		report.Excluded = append(report.Excluded, preview.Exclusion{ID: id, Reason: "no\x1b[2J"})
	}
	excluded := func(report *preview.Report, full bool) string {
		var out strings.Builder
		require.NoError(t, preview.WriteText(&out, report, full))
		_, list, _ := strings.Cut(out.String(), "Excluded from this cluster:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		return list
	}
	lines := strings.Split(excluded(report, true), "\n")
	require.Len(t, lines, 12, "the full text has all")
	assert.Equal(t, `  ConfigMap ns/c11: no?[2J`, lines[11], "foreign text cannot change the terminal")
	assert.Equal(t, append(lines[:10:10], "  … and 2 more"), strings.Split(excluded(report, false), "\n"))
	report.Excluded = report.Excluded[:10]
	assert.Equal(t, lines[:10], strings.Split(excluded(report, false), "\n"))
}

func TestRefusalsAreLimited(t *testing.T) {
	r := &preview.Report{Objects: []preview.Object{{ID: manifest.ID{Kind: "ConfigMap", Name: "fine"}, Verdict: preview.Modify}}}
	assert.Empty(t, preview.Refusals(r))
	for range 6 {
		r.Objects = append(r.Objects, preview.Object{ID: manifest.ID{Kind: "ConfigMap", Name: "a"}, File: "a.yaml", Verdict: preview.Refuse, Message: "no", Remedy: "yes"})
	}
	const one = "ConfigMap a  a.yaml\n  refused: no\n  remedy: yes\n\n"
	assert.Equal(t, strings.Repeat(one, 5)+"… and 1 more", preview.Refusals(r))
}
