package preflight

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/images"
)

func TestPreflightChangesAreBounded(t *testing.T) {
	report := &preview.Report{Totals: preview.Totals{Created: 3, Changed: 60, Refused: 1, Unknown: 2, NotAsked: 1, Orphans: 2, Pruned: 1}}
	for range 60 {
		report.Objects = append(report.Objects, preview.Object{
			ID: manifest.ID{Kind: "ConfigMap", Name: "c"}, Runlevel: 10, Verdict: preview.Modify,
			Fields: []difference.Field{{Path: "data.a"}, {Path: "data." + strings.Repeat("ä", 1000)}},
		})
	}
	report.Objects = append(report.Objects, preview.Object{
		ID: manifest.ID{Kind: "Secret", Name: "s"}, Runlevel: 90, Verdict: preview.Refuse, Message: "no", Remedy: "raise the quota",
	})
	report.Objects = append(report.Objects, preview.Object{ID: manifest.ID{Kind: "Secret", Name: "same"}, Verdict: preview.Nothing, Message: "a note"})
	report.Orphans = []preview.Orphan{{ID: manifest.ID{Kind: "Secret", Name: "stays"}}, {ID: manifest.ID{Kind: "Secret", Name: "left"}, Pruned: true}}
	got := changesOf(report)
	assert.EqualValues(t, 62, got.ObjectCount, "unchanged objects do not count")
	assert.EqualValues(t, 1, got.Deleted)
	assert.EqualValues(t, 3, got.Unknown)
	require.Len(t, got.Objects, api.ReleaseRolloutObjects)
	assert.Equal(t, api.PreflightObject{Object: "Secret s", Runlevel: 90, Verdict: "refused", Message: "no, raise the quota"}, got.Objects[0])
	assert.Equal(t, api.PreflightObject{
		Object: "Secret left", Verdict: "deleted", Message: "once the update is complete, because the release no longer contains it",
	}, got.Objects[1])
	for _, o := range got.Objects {
		assert.LessOrEqual(t, len(o.Message), maxObjectMessage)
		assert.True(t, utf8.ValidString(o.Message))
	}
}

func TestPreflightPassesWithoutBlockers(t *testing.T) {
	for _, test := range []struct {
		name     string
		totals   preview.Totals
		blocking bool
		images   images.Found
		state    string
		again    bool
	}{
		{"passes without blockers", preview.Totals{Created: 1, Unknown: 4}, false, images.Found{}, api.PreflightPassed, false},
		{"blocks if objects would be rejected", preview.Totals{Refused: 1}, false, images.Found{}, api.PreflightObjected, false},
		{"blocks if a precondition blocks", preview.Totals{}, true, images.Found{}, api.PreflightObjected, false},
		{"blocks if an image is missing", preview.Totals{}, false, images.Found{Missing: []preview.Image{{Image: "r@sha256:1", Components: []string{"dns"}}}}, api.PreflightObjected, false},
		{"passes if an image could not be looked up", preview.Totals{}, false, images.Found{Unknown: []preview.Image{{Image: "r@sha256:1", Components: []string{"dns"}, Message: "timeout"}}}, api.PreflightPassed, false},
		{"fails and retries if objects could not be checked", preview.Totals{NotAsked: 2, Refused: 1}, true, images.Found{}, api.PreflightFailed, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := Flight{Account: api.Preflight{Preconditions: []api.PreflightObjection{{Name: "A", Blocking: test.blocking}}}}
			assert.Equal(t, test.again, f.judge(&preview.Report{Totals: test.totals}, test.images))
			assert.Equal(t, test.state, f.Account.State)
			assert.NotEmpty(t, f.Account.Message)
		})
	}
}

// TestPreflightTextsAreBounded uses a requested release and signers that are longer than the bounds of a ReleaseRollout.
func TestPreflightTextsAreBounded(t *testing.T) {
	f := Flight{}
	f.learn(accept.Acceptance{
		Target:   request.Target{Image: strings.Repeat("i", 5000), Version: "1.1.0-" + strings.Repeat("a", 300)},
		Verified: release.Verified{Evidence: make([]release.Evidence, 40)},
	})
	assert.LessOrEqual(t, len(f.Account.Version), 256)
	assert.LessOrEqual(t, len(f.Account.Image), api.ReleaseRolloutText)
	assert.LessOrEqual(t, len(f.Account.VerifiedBy), 32)
}

//threat:control-characters-rewrite
func TestPreflightIsSafeForATerminal(t *testing.T) {
	const evil, safe = "a\x1b[2J\nb", "a?[2J\nb"
	f := New(accept.Input{}, request.Target{Image: evil, Version: evil}, nil, nil, metav1.Now())
	assert.Equal(t, safe, f.Account.Image)
	f.learn(accept.Acceptance{Warned: evil})
	f.begin("Step", evil)
	assert.Equal(t, safe, f.Account.Message)
	assert.Equal(t, safe, f.Account.Preconditions[0].Message)
	report := &preview.Report{Totals: preview.Totals{Refused: 1}, Objects: []preview.Object{{ID: manifest.ID{Kind: "A", Name: evil}, Verdict: preview.Refuse, Message: evil}}}
	f.judge(report, images.Found{})
	assert.NotContains(t, f.Account.Message, "\x1b")
	assert.Equal(t, api.PreflightObject{Object: "A " + safe, Verdict: "refused", Message: safe}, changesOf(report).Objects[0])
}

func TestPreflightWithoutRegistriesLooksUpNoImages(t *testing.T) {
	_, err := (&Flight{}).lookup(t.Context(), nil)
	require.ErrorContains(t, err, "this operator does not contact registries")
}
