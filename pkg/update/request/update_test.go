package request

import (
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/test/clusterversions"
)

func TestUpdateExplainsAMissingTarget(t *testing.T) {
	unreachable := func(cv *configv1.ClusterVersion) {
		clusterversions.Set(cv, configv1.RetrievedUpdates, configv1.ConditionFalse, "RemoteFailed", "no\nroute")
	}
	none := func(*configv1.ClusterVersion) {}
	installing := func(cv *configv1.ClusterVersion) {
		cv.Status.History = []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "4.14.1", Image: cv.Status.Desired.Image}}
	}
	only := func(update configv1.ConditionalUpdate) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) { cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{update} }
	}
	notJudged := clusterversions.Conditional("4.14.4", "4", "", "", "")
	notJudged.Conditions = nil
	both := func(changes ...func(*configv1.ClusterVersion)) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) {
			for _, change := range changes {
				change(cv)
			}
		}
	}
	full := func(cv *configv1.ClusterVersion) { clusterversions.WithUpdates(cv) }
	for _, test := range []struct {
		name    string
		change  func(*configv1.ClusterVersion)
		options Update
		// want is the error; message is the output if there is nothing to do.
		want, message string
	}{
		{
			"it reports unretrieved updates first", both(full, unreachable),
			Update{Version: "4.14.5"},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --to-image to continue with the update.", "",
		},
		{
			"it reports unretrieved updates for the latest update", unreachable,
			Update{Latest: true},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --to-image to continue with an update.", "",
		},
		{
			"it reports unretrieved updates for an image", unreachable,
			Update{Image: clusterversions.Mirrored("e")},
			"cannot refresh available updates:\n  Reason: RemoteFailed\n  Message: no\n  route\n\nspecify --allow-explicit-upgrade to continue with the update.", "",
		},
		{
			"it reports that there are neither recommended nor conditional updates", none,
			Update{Version: "4.14.5", AllowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"it reports that there are no updates for the latest update", none,
			Update{Latest: true, AllowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with an update or wait for new updates to be available.", "",
		},
		{"it reports that a preflight of the current release is not needed", none, Update{Version: "4.14.1", Preflight: true}, "", "info: Cluster is already at version 4.14.1"},
		{
			"it reports that a preflight comes after the start of the update", func(cv *configv1.ClusterVersion) { cv.Status.History[0].State = configv1.PartialUpdate },
			Update{Version: "4.14.1", Preflight: true},
			"", "info: Cluster is already updating to version 4.14.1",
		},
		{
			"it reports that a preflight comes after the start of the install", installing,
			Update{Image: clusterversions.Resting().Status.Desired.Image, Preflight: true},
			"", "info: Cluster is still installing " + clusterversions.Resting().Status.Desired.Image,
		},
		{"it keeps oc's text without a preflight", installing, Update{Version: "4.14.1"}, "", "info: Cluster is already at version 4.14.1"},
		{"it reports that the cluster is at the latest version", none, Update{Latest: true}, "", "info: Cluster is already at the latest available version 4.14.1"},
		{
			"it reports that the cluster is at the latest recommended version", only(clusterversions.Conditional("4.14.4", "4", metav1.ConditionFalse, "R", "m")),
			Update{Latest: true},
			"", "info: Cluster is already at the latest available version 4.14.1",
		},
		{
			"it reports that there are no recommended updates", none,
			Update{Version: "4.14.5"},
			"no recommended updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"it ignores an update without a Recommended condition", only(notJudged),
			Update{Version: "4.14.4", AllowNotRecommended: true},
			"no recommended or conditional updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
		{
			"it lists the possible targets", full,
			Update{Version: "4.14.5"},
			"the update is not one of the possible targets: 4.14.10, 4.14.9-rc.1, 4.14.3. specify --to-image to continue with the update.", "",
		},
		{
			"it also lists targets that are not recommended", full,
			Update{Image: clusterversions.Mirrored("e"), AllowNotRecommended: true},
			"the update is not one of the possible targets: 4.14.12, 4.14.10, 4.14.9-rc.1, 4.14.4, 4.14.3. specify --allow-explicit-upgrade to continue with the update.", "",
		},
		{
			"it reports the risk before an outdated list", both(full, unreachable),
			Update{Version: "4.14.4"},
			"the update 4.14.4 is not one of the recommended updates, but is available as a conditional update. To accept the Recommended=False risk and to proceed " +
				"with update use --allow-not-recommended.\n  Reason: MultipleReasons\n  Message: Slow disks get slower. https://issues.example/1\n  \n  Leases get lost. https://issues.example/2", "",
		},
		{
			"it reports a missing target before the guards", both(func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
			}),
			Update{Version: "4.14.5"},
			"no recommended updates, specify --to-image to continue with the update or wait for new updates to be available.", "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cv := clusterversions.Resting()
			test.change(cv)
			r := &Request{}
			err := test.options.Plan(cv, r)
			assert.Nil(t, r.SpecPatch)
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, test.message, r.Message)
				return
			}
			require.EqualError(t, err, test.want)
			var refusal *Refusal
			assert.ErrorAs(t, err, &refusal)
		})
	}
}

func TestSignedImageNeedsNoFlagWithoutUpdateService(t *testing.T) {
	image := clusterversions.Mirrored("e")
	bare := func(cv *configv1.ClusterVersion) { cv.Spec.Channel, cv.Spec.Upstream = "", "" }
	for _, test := range []struct {
		name    string
		change  func(*configv1.ClusterVersion)
		options Update
		refused bool
	}{
		{name: "it requests the image", change: bare, options: Update{Image: image, Unserved: true}},
		{name: "it ignores the flag", change: bare, options: Update{Image: image, Unserved: true, AllowExplicit: true}},
		{name: "it requests a preflight of the image", change: bare, options: Update{Image: image, Unserved: true, Preflight: true}},
		{name: "it needs the flag if the operator may have a service", change: bare, options: Update{Image: image}, refused: true},
		{name: "it needs the flag for an image that the cluster does not verify", change: bare, options: Update{Image: image, Unserved: true, Force: true}, refused: true},
		{name: "it needs the flag for a tag", change: bare, options: Update{Image: "registry.example/release:1", Unserved: true}, refused: true},
		{
			name: "it needs the flag if a channel is set", options: Update{Image: image, Unserved: true}, refused: true,
			change: func(cv *configv1.ClusterVersion) { cv.Spec.Channel, cv.Spec.Upstream = "stable", "" },
		},
		{
			name: "it needs the flag if the ClusterVersion names a service", options: Update{Image: image, Unserved: true}, refused: true,
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.Channel, cv.Spec.Upstream = "", "https://updates.example.com/graph"
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cv := clusterversions.Resting()
			test.change(cv)
			r := &Request{}
			err := test.options.Plan(cv, r)
			if test.refused {
				require.ErrorContains(t, err, "specify --allow-explicit-upgrade to continue with the update")
				return
			}
			require.NoError(t, err)
			assert.Empty(t, r.Warnings)
			assert.Equal(t, image, r.Spec.DesiredUpdate.Image)
		})
	}
}

func TestClearReportsItsEffect(t *testing.T) {
	const before, next = "registry.example/r@sha256:1111", "registry.example/r@sha256:2222"
	updating := configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: "1.1.0", Image: next},
		History: []configv1.UpdateHistory{
			{State: configv1.PartialUpdate, Version: "1.1.0", Image: next}, {State: configv1.CompletedUpdate, Version: "1.0.0", Image: before},
		},
	}
	resting := configv1.ClusterVersionStatus{Desired: configv1.Release{Version: "1.0.0", Image: before}, History: updating.History[1:]}
	interrupted := updating
	interrupted.History = slices.Insert(slices.Clone(updating.History), 1, configv1.UpdateHistory{
		State: configv1.PartialUpdate, Version: "1.0.5", Image: "registry.example/r@sha256:3333",
	})
	installing := configv1.ClusterVersionStatus{Desired: updating.Desired, History: updating.History[:1]}
	replacing := updating
	replacing.History = slices.Clone(updating.History)
	replacing.History[1].State = configv1.PartialUpdate
	returning := updating
	returning.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue}}
	returning.Desired.Version, returning.History = "1.0.0", slices.Clone(updating.History)
	returning.History[0].Version, returning.History[1].Version = "1.0.0", "1.1.0"
	for _, test := range []struct {
		name     string
		operator string
		asked    configv1.Update
		status   configv1.ClusterVersionStatus
		want     string
	}{
		{"goes back", before, configv1.Update{Version: "1.1.0", Image: next}, updating, "Update to 1.1.0 cancelled; going back to 1.0.0"},
		{
			"stays if the new operator runs, by another name", "mirror.example/r@sha256:2222",
			configv1.Update{Version: "1.1.0"},
			updating,
			"Request cleared, but the cluster completes the update to 1.1.0, because the operator of 1.1.0 already runs. To go back, run 'cvo upgrade rollback --allow-upgrade-with-warnings'.",
		},
		{
			"completes a rollback whose operator runs", next,
			configv1.Update{Version: "1.0.0", Image: next},
			returning,
			"Request cleared, but the cluster completes the update to 1.0.0, because the operator of 1.0.0 already runs. To go back, run " +
				"'cvo upgrade --to-image " + before + " --allow-explicit-upgrade --allow-upgrade-with-warnings'.",
		},
		{
			"does not know the operator", "",
			configv1.Update{Image: next},
			updating,
			"Update to " + next + " cancelled; the cluster goes back to 1.0.0, unless the operator of 1.1.0 already runs",
		},
		{
			"goes back to an update that did not complete", "registry.example/r@sha256:3333",
			configv1.Update{Version: "1.1.0"},
			interrupted,
			"Update to 1.1.0 cancelled; going back to 1.0.5",
		},
		{"cancels another request during an update", before, configv1.Update{Version: "1.2.0"}, updating, "Update to 1.2.0 cancelled; going back to 1.0.0"},
		{"cancels another request after the operator was replaced", next, configv1.Update{Version: "1.2.0"}, updating, "Update to 1.2.0 cancelled; the cluster stays at 1.1.0"},
		{
			"ends a preflight", before,
			configv1.Update{Version: "1.1.0", Image: next, Mode: configv1.UpdateModePreflight},
			resting,
			"Preflight of 1.1.0 cancelled; the cluster stays at 1.0.0",
		},
		{
			"ends a preflight of the same release", before,
			configv1.Update{Version: "1.0.0", Mode: configv1.UpdateModePreflight},
			resting,
			"Preflight of 1.0.0 cancelled; the cluster stays at 1.0.0",
		},
		{
			"ends a preflight, and with it an update under way", before,
			configv1.Update{Version: "1.2.0", Mode: configv1.UpdateModePreflight},
			updating,
			"Preflight of 1.2.0 cancelled; going back to 1.0.0",
		},
		{"has not started", before, configv1.Update{Version: "1.1.0"}, resting, "Update to 1.1.0 cancelled; the cluster stays at 1.0.0"},
		{"has completed", before, configv1.Update{Version: "1.0.0"}, resting, "Cleared the update field, still at 1.0.0"},
		{"is an install", next, configv1.Update{Version: "1.1.0"}, installing, "Cleared the update field, still at 1.1.0"},
		{
			"has replaced a release during the install", before,
			configv1.Update{Image: next},
			replacing,
			"Request cleared, but the cluster continues to install 1.1.0, because no release has completed to which it could go back.",
		},
		{"waits for a replacement during the install", before, configv1.Update{Version: "1.2.0"}, replacing, "Update to 1.2.0 cancelled; the cluster stays at 1.1.0"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{Spec: configv1.ClusterVersionSpec{DesiredUpdate: &test.asked}, Status: test.status}
			r := &Request{}
			require.NoError(t, Clear{Operator: test.operator}.Plan(cv, r))
			require.NoError(t, r.Check(cv))
			assert.Equal(t, test.want, r.Message)
		})
	}
}
