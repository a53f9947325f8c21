package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever a ClusterVersion says, it is planned from and printed: without a panic, and without a command to a terminal.
func FuzzUpgradeOfAnyClusterVersion(f *testing.F) {
	for _, cv := range []*configv1.ClusterVersion{{}, restingCluster(), withUpdates(restingCluster())} {
		data, err := json.Marshal(cv)
		require.NoError(f, err)
		f.Add(data, "4.14.3", mirrored("3"))
	}
	f.Add([]byte(`{"spec":{"desiredUpdate":{"acceptRisks":[{"name":"\u001b"}]}},"status":{"history":[{"version":"0.0.0"}],"conditionalUpdates":[{"risks":[{}]}]}}`), "", "\x1b")
	f.Fuzz(func(t *testing.T, data []byte, to, toImage string) {
		cv := &configv1.ClusterVersion{}
		if json.Unmarshal(data, cv) != nil {
			return
		}
		before := cv.DeepCopy()
		var out, errs bytes.Buffer
		streams := Streams{Out: &out, Err: &errs}
		require.NoError(t, (&upgradeOptions{includeNotRecommended: true}).printOverview(streams, newUpgradeOverview(cv)))
		accept := &upgradeAcceptOptions{}
		if accept.read([]string{to}) != nil {
			accept.clear = true
		}
		for _, plan := range []planner{
			(&upgradeOptions{to: to}).planUpdate,
			(&upgradeOptions{to: to, allowNotRecommended: true, allowWithWarnings: true, force: true}).planUpdate,
			(&upgradeOptions{toImage: toImage, allowNotRecommended: true}).planUpdate,
			(&upgradeOptions{toImage: toImage, allowExplicit: true}).planUpdate,
			(&upgradeOptions{toLatest: true, allowNotRecommended: true}).planUpdate,
			(&upgradeOptions{force: true}).planMultiArch,
			(&upgradeOptions{}).planClear,
			(&upgradeChannelOptions{channel: to, allowExplicit: true}).plan,
			accept.plan,
			(&upgradeRollbackOptions{allowWithWarnings: true}).plan,
		} {
			r := &request{}
			err := plan(cv, r)
			var refused *RefusedError
			if err != nil {
				require.ErrorAs(t, err, &refused)
				assert.Nil(t, r.specPatch, "what is refused is not sent")
			} else {
				stored := cv.DeepCopy()
				if r.spec != nil {
					stored.Spec = *r.spec
				}
				require.NoError(t, r.check(stored))
				assert.NotEmpty(t, r.Message)
			}
			PrintError(&errs, err)
			require.NoError(t, (&requestFlags{dryRun: dryRunClient}).print(streams, r))
		}
		assert.Equal(t, before, cv, "planning changes nothing")
		control := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
		assert.Equal(t, -1, strings.IndexFunc(out.String()+errs.String(), control))
	})
}
