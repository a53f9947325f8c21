package integration_test

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// diffAgent is the user agent of `cvo upgrade diff`.
const diffAgent = "cvo-upgrade-diff"

// diffRequests is the maximum number of requests of `cvo upgrade diff` for each manifest of the real releases. They include discovery and a
// LIST for each kind.
const diffRequests = 1.1

// assertDiff compares a cluster at 4.22.9 with 4.23.0. The diff must write nothing and send few requests.
func (p *platform) assertDiff(target release.Image, manifests int) {
	p.t.Helper()
	start := time.Now()
	before := p.diff(target)
	took := time.Since(start)
	requests := 0
	for _, e := range p.audit(start) {
		if e.UserAgent == diffAgent {
			requests++
			assert.False(p.t, e.Write(), "%s %s", e.Verb, e.URI)
		}
	}
	p.t.Logf("diff: %s, %d requests for %d manifests: %s", took.Round(10*time.Millisecond), requests, manifests, before.Totals)
	assert.LessOrEqual(p.t, float64(requests), diffRequests*float64(manifests))
	assert.Equal(p.t, "4.23.0", before.Version)
	assert.Zero(p.t, before.Totals.Refused)
	assert.Zero(p.t, before.Totals.NotAsked)
	assert.Positive(p.t, before.Totals.Created)
	assert.Positive(p.t, before.Totals.Changed)
	assert.Equal(p.t, manifests, before.Totals.Created+before.Totals.Changed+before.Totals.Deleted+before.Totals.Recreated+
		before.Totals.Unchanged+before.Totals.Unknown, "every manifest is counted")
}

// assertNoDiff compares a cluster with the release that it runs.
func (p *platform) assertNoDiff(running release.Image) {
	p.t.Helper()
	after := p.diff(running)
	assert.Zero(p.t, after.Totals.Created)
	assert.Zero(p.t, after.Totals.Refused)
	for _, o := range after.Objects {
		assert.Equal(p.t, preview.Nothing, o.Verdict, "%s: %s %v", o.ID, o.Message, o.Fields)
	}
}

// diff runs `cvo upgrade diff`. It accepts objects whose result is unknown.
func (p *platform) diff(target release.Image) preview.Report {
	p.t.Helper()
	out, err := p.run("upgrade", "diff", target.ByDigest(), "--trust", p.trust, "--payload-cache", filepath.Join(p.dir, "cache"), "-o", "json")
	if err != nil {
		require.ErrorContains(p.t, err, "could not be checked")
	}
	var report preview.Report
	require.NoError(p.t, json.Unmarshal([]byte(out), &report))
	return report
}
