package cli

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUpgradeSaysWhyThereIsNoTarget(t *testing.T) {
	unreachable := func(cv *configv1.ClusterVersion) {
		set(cv, configv1.RetrievedUpdates, configv1.ConditionFalse, "RemoteFailed", "no\nroute")
	}
	none := func(*configv1.ClusterVersion) {}
	only := func(update configv1.ConditionalUpdate) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) { cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{update} }
	}
	notJudged := conditional("4.14.4", "4", "", "", "")
	notJudged.Conditions = nil
	both := func(changes ...func(*configv1.ClusterVersion)) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) {
			for _, change := range changes {
				change(cv)
			}
		}
	}
	full := func(cv *configv1.ClusterVersion) { withUpdates(cv) }
	for _, test := range []struct {
		name    string
		change  func(*configv1.ClusterVersion)
		options upgradeOptions
		// want is the refusal; message what is said where there is nothing to do.
		want, message string
	}{
		{
			"first of all that updates could not be retrieved", both(full, unreachable),
			upgradeOptions{to: "4.14.5"},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --to-image to continue with the update.", "",
		},
		{
			"that also of the newest", unreachable,
			upgradeOptions{toLatest: true},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --to-image to continue with an update.", "",
		},
		{
			"that also of an image", unreachable,
			upgradeOptions{toImage: mirrored("e")},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --allow-explicit-upgrade to continue with the update.", "",
		},
		{
			"that there are none of either kind", none,
			upgradeOptions{to: "4.14.5", allowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"the same of the newest", none,
			upgradeOptions{toLatest: true, allowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with an update or wait for new updates to be available.", "",
		},
		{"that it is at the newest", none, upgradeOptions{toLatest: true}, "", "info: Cluster is already at the latest available version 4.14.1"},
		{
			"that it is at the newest that is recommended", only(conditional("4.14.4", "4", metav1.ConditionFalse, "R", "m")),
			upgradeOptions{toLatest: true},
			"", "info: Cluster is already at the latest available version 4.14.1",
		},
		{
			"that none are recommended", none,
			upgradeOptions{to: "4.14.5"},
			"no recommended updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"the same of an update that nobody has judged", only(notJudged),
			upgradeOptions{to: "4.14.4", allowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"what there is instead", full,
			upgradeOptions{to: "4.14.5"},
			"the update is not one of the possible targets: 4.14.10, 4.14.9-rc.1, 4.14.3. specify --to-image to continue with the update.", "",
		},
		{
			"what there is instead, with what is not recommended", full,
			upgradeOptions{toImage: mirrored("e"), allowNotRecommended: true},
			"the update is not one of the possible targets: 4.14.12, 4.14.10, 4.14.9-rc.1, 4.14.4, 4.14.3. specify --allow-explicit-upgrade to continue with the update.", "",
		},
		{
			"the risk before that the list is old", both(full, unreachable),
			upgradeOptions{to: "4.14.4"},
			"the update 4.14.4 is not one of the recommended updates, but is available as a conditional update. To accept the Recommended=False risk and to proceed " +
				"with update use --allow-not-recommended.\n  Reason: MultipleReasons\n  Message: Slow disks get slower. https://issues.example/1\n  \n  Leases get lost. https://issues.example/2", "",
		},
		{
			"the target before the guards", both(func(cv *configv1.ClusterVersion) {
				set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
			}),
			upgradeOptions{to: "4.14.5"},
			"no recommended updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
	} {
		t.Run("it says "+test.name, func(t *testing.T) {
			cv := restingCluster()
			test.change(cv)
			r := &request{}
			err := test.options.planUpdate(cv, r)
			assert.Nil(t, r.specPatch)
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, test.message, r.Message)
				return
			}
			require.EqualError(t, err, test.want)
			assert.Equal(t, ExitRefused, ExitCode(err))
		})
	}
}

func TestUpgradeRefusesContradictions(t *testing.T) {
	image := "--to-image=" + mirrored("3")
	for _, test := range []struct{ args, want string }{
		{"--clear --to=4.14.3", "--clear may not be specified with any other flags"},
		{"--clear --to-latest", "--clear may not be specified with any other flags"},
		{"--clear --to-multi-arch", "--clear may not be specified with any other flags"},
		{"--clear " + image, "--clear may not be specified with any other flags"},
		{"--to-multi-arch --to=4.14.3", "--to-multi-arch may not be used with --to, --to-image, or --to-latest"},
		{"--to=4.14.3 " + image, "only one of --to or --to-image may be provided"},
		{"--to-latest --to=4.14.3", "--to-latest may not be used with --to or --to-image"},
		{"--to-latest " + image, "--to-latest may not be used with --to or --to-image"},
		{"--to=", "--to has no value"},
		{"--to-image=", "--to-image has no value"},
		{"--to=4.14", "--to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): "},
		{"--to-image=a/b:c:d", "--to-image must be a valid image pull spec: "},
		{"--to-image=4.14.3", "--to-image must be a valid image pull spec: no registry or repository specified"},
		{"--to-image=registry.example:5000/rel", "--to-image must be a valid image pull spec: no tag or digest specified"},
		{"--to-image=registry.example/rel:4.14.3", "--to-image must be a by-digest pull spec, unless --force is also set, because release images that are not accessed via digest cannot be verified"},
		{"--force", "--force is about a request, and none is made"},
		{"--allow-not-recommended", "--allow-not-recommended is about a request"},
		{"--dry-run", "--dry-run is about a request"},
		{"--exit-code --to=4.14.3", "--exit-code tells the state"},
		{"--to=4.14.3 --dry-run=maybe", "use none, server or client"},
		{"--to=4.14.3 -o xml", `unknown output "xml"`},
		{"-o xml", `unknown output "xml"`},
		{"4.14.3", `unknown command "4.14.3"`},
		{"rollback 4.14.0", `unknown command "4.14.0"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			out, errs, code := upgradeWith(t, "/nonexistent", strings.Fields(test.args)...)
			assert.Empty(t, out)
			assert.Contains(t, errs, "error: ")
			assert.Contains(t, errs, test.want)
			assert.Equal(t, ExitUsage, code)
		})
	}
}

func TestUpgradeOrdersVersions(t *testing.T) {
	var releases []configv1.Release
	for _, version := range []string{"odd", "4.9.0", "4.10.0-rc.1", "", "4.10.0", "other"} {
		releases = append(releases, configv1.Release{Version: version})
	}
	cv := restingCluster()
	cv.Status.AvailableUpdates = releases
	var got []string
	for _, update := range newUpgradeOverview(cv).Recommended {
		got = append(got, update.Version)
	}
	assert.Equal(t, []string{"4.10.0", "4.10.0-rc.1", "4.9.0", "other", "odd", ""}, got)
	assert.Equal(t, "odd", cv.Status.AvailableUpdates[0].Version, "the ClusterVersion is left as it is")
}
