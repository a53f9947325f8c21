package integration_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/vandal"
)

const driftEdits = 200

// TestDriftIsRepairedByOneWrite changes, deletes and unlabels objects of twenty kinds of an installed platform, one by one. One write must
// repair each.
//
//threat:another-client-loosens
func TestDriftIsRepairedByOneWrite(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators")
	p.operator(r.from.ByDigest())
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.awaitRecords("4.22.9", time.Time{})

	begin := time.Now()
	kinds := p.vandalize(r.fromDir, driftEdits)
	require.Equal(t, 20, kinds)

	repairs := len(p.appliedSince(begin))
	assert.InDelta(t, driftEdits, repairs, driftEdits/20.0, "one write per edit, plus the status of recreated objects")
}

// vandalize damages objects of a release one by one, and checks that each is repaired. It logs the times until the repairs, and
// returns the number of kinds.
func (p *platform) vandalize(dir string, n int) (kinds int) {
	p.t.Helper()
	filter := inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}
	loaded, err := payload.Load(os.DirFS(dir), "release", payload.Options{Filter: filter})
	require.NoError(p.t, err)
	v, err := vandal.New(p.env.Config("vandal"), loaded.Manifests, patience, rand.New(rand.NewPCG(1, 1)))
	require.NoError(p.t, err)
	edits, kinds := vandal.Plan(loaded.Manifests, n, rand.New(rand.NewPCG(1, 0)))
	require.Len(p.t, edits, n)
	var times []float64 // in seconds
	for _, e := range edits {
		took, err := v.Do(p.t.Context(), e)
		if assert.NoError(p.t, err, e.String()) {
			times = append(times, took.Seconds())
		}
	}
	p.t.Logf("%d edits of %d kinds: repaired after %.0f ms (median), %.0f ms (p99), %.0f ms at most", len(times), kinds,
		1e3*vandal.Percentile(times, 0.5), 1e3*vandal.Percentile(times, 0.99), 1e3*vandal.Percentile(times, 1))
	return kinds
}
