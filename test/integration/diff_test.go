package integration_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// diffAgent is the user agent of `cvo upgrade diff`.
const diffAgent = "cvo-upgrade-diff"

// What `cvo upgrade diff` may cost for the real releases. A dry run takes the API server as long as the apply itself, so
// that on a machine that is busy with other things the install before is the measure.
const (
	diffTime     = 20 * time.Second
	diffRequests = 1.1 // for each manifest; a LIST for each kind and discovery are beside it
)

// TestDiffOfRealReleases asks a cluster at 4.22.9 what an update to 4.23.0 would do, and then updates it: the diff
// writes nothing, and afterwards there is nothing left of what it told.
func TestDiffOfRealReleases(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators")
	start := time.Now()
	operator := p.operator(r.from.ByDigest())
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	install := time.Since(start)
	operator.end(t)

	start = time.Now()
	before := p.diff(r.to)
	took := time.Since(start)
	requests := 0
	for _, e := range p.audit(start) {
		if e.UserAgent == diffAgent {
			requests++
			assert.False(t, e.Write(), "%s %s", e.Verb, e.URI)
		}
	}
	manifests := len(p.graphOf(r.toDir, release.Updating).objects)
	t.Logf("after an install in %s: %s, %d requests for %d manifests: %s",
		install.Round(10*time.Millisecond), took.Round(10*time.Millisecond), requests, manifests, before.Totals)
	assert.LessOrEqual(t, float64(requests), diffRequests*float64(manifests))
	assert.Less(t, took, max(diffTime, 2*install))
	assert.Equal(t, "4.23.0", before.Version)
	assert.Zero(t, before.Totals.Refused)
	assert.Zero(t, before.Totals.NotAsked)
	assert.Positive(t, before.Totals.Created)
	assert.Positive(t, before.Totals.Changed)
	assert.Equal(t, manifests, before.Totals.Created+before.Totals.Changed+before.Totals.Deleted+before.Totals.Recreated+
		before.Totals.Unchanged+before.Totals.Unknown, "every manifest is told of")

	p.operator(r.from.ByDigest())
	p.await("4.22.9 to be taken up again", time.Minute, completed("4.22.9"))
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	after := p.diff(r.to)
	t.Logf("after the update: %s", after.Totals)
	assert.Zero(t, after.Totals.Created)
	assert.Zero(t, after.Totals.Refused)
	for _, o := range after.Objects {
		assert.Equal(t, preview.Nothing, o.Verdict, "%s: %s %v", o.ID, o.Message, o.Fields)
	}
}

// diff runs `cvo upgrade diff`.
func (p *platform) diff(target release.Image) preview.Report {
	p.t.Helper()
	out, err := p.run("upgrade", "diff", target.ByDigest(), "--trust", p.trust, "--payload-cache", filepath.Join(p.dir, "cache"), "-o", "json")
	require.NoError(p.t, err)
	var report preview.Report
	require.NoError(p.t, json.Unmarshal([]byte(out), &report))
	return report
}
