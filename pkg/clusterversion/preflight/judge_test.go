package preflight

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/update/images"
)

func TestPreflightNamesTheFirstObjectOfEachObstacle(t *testing.T) {
	object := func(name string, verdict preview.Verdict, message string) preview.Object {
		return preview.Object{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: name}, Verdict: verdict, Message: message}
	}
	for _, tt := range []struct {
		name           string
		report         preview.Report
		state, message string
	}{
		{
			name:   "it counts no unknown objects",
			report: preview.Report{Objects: []preview.Object{object("a", preview.Create, "")}, Totals: preview.Totals{Created: 1, Deleted: 1, Orphans: 4, Pruned: 2}},
			state:  api.PreflightPassed, message: "objects to create: 1, to change: 0, to delete: 3, to recreate: 0, unknown: 0",
		},
		{
			name: "it names an unknown object",
			report: preview.Report{
				Objects: []preview.Object{object("a", preview.Create, ""), object("b", preview.Unknown, "not served"), object("c", preview.Unknown, "other")},
				Totals:  preview.Totals{Created: 1, Unknown: 2},
			},
			state:   api.PreflightPassed,
			message: "objects to create: 1, to change: 0, to delete: 0, to recreate: 0, unknown: 2, first ConfigMap ns/b: not served",
		},
		{
			name: "it names a rejected object",
			report: preview.Report{
				Objects: []preview.Object{object("a", preview.Refuse, "data: too long")}, Totals: preview.Totals{Refused: 1},
			},
			state: api.PreflightObjected,
			message: "objects that the API server would reject: 1, first ConfigMap ns/a: data: too long; " +
				"objects to create: 0, to change: 0, to delete: 0, to recreate: 0, unknown: 0",
		},
		{
			name:   "it reports unchecked objects without a name",
			report: preview.Report{Totals: preview.Totals{NotAsked: 1}},
			state:  api.PreflightFailed,
			message: "objects that could not be checked: 1; " +
				"objects to create: 0, to change: 0, to delete: 0, to recreate: 0, unknown: 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &Flight{}
			f.judge(&tt.report, images.Found{})
			assert.Equal(t, tt.state, f.Account.State)
			assert.Equal(t, tt.message, f.Account.Message)
		})
	}
}
