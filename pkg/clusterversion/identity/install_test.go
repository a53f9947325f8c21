package identity

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// TestInheritReturnsTheInventoryRelease finds the release in the inventory.
func TestInheritReturnsTheInventoryRelease(t *testing.T) {
	digest := string(digestOf("1.1.0"))
	elsewhere := "elsewhere.example.com/r@" + digest
	recorded := &api.ReleaseStatusStatus{Releases: []api.AcceptedRelease{{Version: "1.2.0", Image: imageOf("1.2.0")}, {Version: "1.1.0", Image: elsewhere}}}
	for _, tt := range []struct {
		name            string
		version, digest string
		found           *api.ReleaseStatusStatus
		want            Inherited
	}{
		{name: "returns nothing without an inventory", found: recorded},
		{name: "returns the recorded location of the digest", version: "1.1.0", digest: digest, found: recorded, want: Inherited{Image: elsewhere, Version: "1.1.0"}},
		{name: "returns the operator's repository without a record", version: "1.1.0", digest: digest, want: Inherited{Image: imageOf("1.1.0"), Version: "1.1.0"}},
		{name: "returns the recorded image of the version", version: "1.1.0", found: recorded, want: Inherited{Image: elsewhere, Version: "1.1.0"}},
		{name: "returns only the version without a digest and a record", version: "1.1.0", want: Inherited{Version: "1.1.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Inherit(tt.version, tt.digest, tt.found, imageOf("1.0.0")))
		})
	}
}

//threat:request-replaces-release
func TestInstallIsReplacedOnlyIfItFails(t *testing.T) {
	own := imageOf("1.0.0")
	first, next := partial("1.0.0"), partial("1.0.1")
	byDigest := configv1.Update{Image: imageOf("1.0.1"), Version: "1.0.1"}
	forced := byDigest
	forced.Force = true
	another := configv1.Update{Image: imageOf("1.0.2")}
	ownTarget := request.Target{Image: own, Own: true}
	replaces := request.Target{Image: imageOf("1.0.1"), Version: "1.0.1", Requested: true}
	begun := &api.FirstInstall{ClusterVersionUID: "uid"}
	continues := &api.FirstInstall{ClusterVersionUID: "uid", Continues: imageOf("1.1.0")}
	continued := request.Target{Image: imageOf("1.1.0"), Continued: true}
	waiting := func(u configv1.Update) *api.FirstInstall {
		return &api.FirstInstall{ClusterVersionUID: "uid", Waiting: &api.RequestContent{Image: u.Image, Version: u.Version, Force: u.Force}}
	}
	notAccepted := installingAt(true, first)
	api.FindCondition(notAccepted.Status.Conditions, api.Failing).Reason = api.ReasonNoAcceptedRelease
	const text = "the requested update to 1.0.1 starts after the install"
	for _, tt := range []struct {
		name       string
		install    *api.FirstInstall
		cv         *configv1.ClusterVersion
		inherited  Inherited
		unrecorded bool
		want       request.Target
		pending    string
	}{
		{name: "installs its own release", install: begun, cv: installingAt(false), want: ownTarget},
		{
			name: "continues with its own release if that is of the inherited version", install: begun, cv: installingAt(false), inherited: Inherited{Version: "1.0.0"},
			want: request.Target{Image: own, Own: true, Version: "1.0.0", Continued: true},
		},
		{name: "ignores the inherited version once the install began", install: begun, cv: installingAt(false, first), inherited: Inherited{Version: "1.0.0"}, want: ownTarget},
		{name: "installs its own before anything began", install: waiting(byDigest), cv: wants(installingAt(false), byDigest), want: ownTarget, pending: text},
		{name: "does not abort a healthy install", install: begun, cv: wants(installingAt(false, first), byDigest), want: ownTarget, pending: text + ", or at once if the install fails"},
		{name: "does not abort a healthy install for a request made before it", install: waiting(byDigest), cv: wants(installingAt(false, first), byDigest), want: ownTarget, pending: text},
		{
			name: "does not abort a failing install for a request made before it", install: waiting(byDigest), cv: wants(installingAt(true, first), byDigest),
			want: ownTarget, pending: text + " (to replace the release now, clear spec.desiredUpdate and request it again)",
		},
		{
			name: "does not abort an install for a forced request made before it", install: waiting(forced), cv: wants(installingAt(false, first), forced),
			want: ownTarget, pending: text + " (to replace the release now, clear spec.desiredUpdate and request it again)",
		},
		{name: "replaces a release whose install fails", install: begun, cv: wants(installingAt(true, first), byDigest), want: replaces},
		{
			name: "does not replace a release that is not accepted yet", install: begun, cv: wants(notAccepted, byDigest),
			want: ownTarget, pending: text + ", or at once if the install fails for another reason",
		},
		{
			name: "continues to replace a failed release that a new process does not accept", cv: wants(notAccepted, byDigest),
			install: &api.FirstInstall{ClusterVersionUID: "uid", Replaces: &api.RequestContent{Image: byDigest.Image, Version: byDigest.Version}},
			want:    replaces,
		},
		{name: "replaces a healthy release with force", install: begun, cv: wants(installingAt(false, first), forced), want: request.Target{Image: imageOf("1.0.1"), Version: "1.0.1", Requested: true, Force: true}},
		{
			name: "does not replace a release for a request by version", install: begun, cv: wants(installingAt(true, first), configv1.Update{Version: "1.0.1"}),
			want: ownTarget, pending: text + " (to replace the release now, request it by its image)",
		},
		{
			name: "does not replace a release for a request that cannot be recorded", install: begun, cv: wants(installingAt(true, first), byDigest), unrecorded: true,
			want: ownTarget, pending: text + " (to replace the release now, the operator must record the request; if it cannot, apply the CustomResourceDefinition releasestatuses.cvo.cluster-version.github.io of this operator's release)",
		},
		{name: "reports no waiting request for the release being installed", install: waiting(byDigest), cv: wants(installingAt(true, first), configv1.Update{Image: own, Version: "9.9.9"}), want: ownTarget},
		{name: "continues with a healthy replacement", install: begun, cv: wants(installingAt(false, next, first), byDigest), want: replaces},
		{name: "continues with the replacement without a record", cv: wants(installingAt(false, next, first), byDigest), unrecorded: true, want: replaces},
		{name: "keeps a healthy replacement while another request waits", install: begun, cv: wants(installingAt(false, next, first), another), want: request.Target{Image: imageOf("1.0.1")}, pending: "the requested update to " + imageOf("1.0.2") + " starts after the install, or at once if the install fails"},
		{name: "replaces a failing replacement", install: begun, cv: wants(installingAt(true, next, first), another), want: request.Target{Image: imageOf("1.0.2"), Requested: true}},
		{name: "keeps the replacement when the request is cleared or invalid", install: begun, cv: installingAt(false, next, first), want: request.Target{Image: imageOf("1.0.1")}},
		{name: "installs its own release in place of another operator's incomplete one", install: begun, cv: installingAt(false, partial("0.9.0")), want: ownTarget},
		{name: "continues with the release of the inventory", install: continues, cv: installingAt(false), want: continued},
		{name: "continues with the release of the inventory after a restart", install: continues, cv: installingAt(false, partial("1.1.0")), want: continued},
		{name: "continues with the release of the inventory with force", install: continues, cv: wants(installingAt(false), configv1.Update{Image: imageOf("1.1.0"), Force: true}), want: request.Target{Image: imageOf("1.1.0"), Requested: true, Force: true, Continued: true}},
		{name: "continues with the release of the inventory while another request waits", install: continues, cv: wants(installingAt(false), byDigest), want: continued, pending: text},
		{name: "installs its own release if the inventory has the same digest", install: &api.FirstInstall{ClusterVersionUID: "uid", Continues: "mirror.example.com/r@" + string(digestOf("1.0.0"))}, cv: installingAt(false), want: ownTarget},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, pending := Identity{uid: "uid", install: tt.install}.InstallTarget(tt.cv, own, tt.inherited, !tt.unrecorded)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.pending, pending)
		})
	}
}

// TestInstallIsRestoredFromItsRecord follows the record of a first install. After each step a new process restores the same identity.
//
//threat:request-replaces-release
func TestInstallIsRestoredFromItsRecord(t *testing.T) {
	var id Identity
	look := func(cv *configv1.ClusterVersion, from Inherited) *api.FirstInstall {
		id = id.ObserveInstall(cv, from)
		found := id.Record(api.ReleaseStatusStatus{})
		again := Recall(&found, cv, Of(cv), request.Target{}, imageOf("1.0.0")).ObserveInstall(cv, from)
		assert.Equal(t, id.install, again.install, "a restart restores the install")
		return id.install
	}
	update, other := configv1.Update{Image: imageOf("1.0.1")}, configv1.Update{Image: imageOf("1.0.2")}
	waiting := &api.RequestContent{Image: update.Image}

	assert.Equal(t, &api.FirstInstall{ClusterVersionUID: "uid", Waiting: waiting}, look(wants(installingAt(false), update), Inherited{}))
	assert.Equal(t, waiting, look(wants(installingAt(true, partial("1.0.0")), update), Inherited{}).Waiting)
	assert.Nil(t, look(installingAt(true, partial("1.0.0")), Inherited{}).Waiting, "cleared")
	assert.Nil(t, look(wants(installingAt(true, partial("1.0.0")), update), Inherited{}).Waiting, "the cleared request was made again")
	assert.Nil(t, look(wants(installingAt(true, partial("1.0.1"), partial("1.0.0")), other), Inherited{}).Waiting)

	id = Identity{}
	look(installingAt(false), Inherited{})
	assert.Nil(t, look(wants(installingAt(false, partial("1.0.0")), update), Inherited{}).Replaces, "the install does not fail")
	assert.Equal(t, waiting, look(wants(installingAt(true, partial("1.0.0")), update), Inherited{}).Replaces)
	restarted := wants(installingAt(true, partial("1.0.0")), update)
	api.FindCondition(restarted.Status.Conditions, api.Failing).Reason = api.ReasonNoAcceptedRelease
	assert.Equal(t, waiting, look(restarted, Inherited{}).Replaces, "the decision stays")
	assert.Nil(t, look(wants(installingAt(false, partial("1.0.0")), update), Inherited{}).Replaces, "the install does not fail any more")
	assert.Nil(t, look(restarted, Inherited{}).Replaces, "nothing failed since")
	assert.Equal(t, waiting, look(wants(installingAt(true, partial("1.0.0")), update), Inherited{}).Replaces)
	assert.Nil(t, look(wants(restarted, other), Inherited{}).Replaces, "another request")
	assert.Nil(t, look(wants(restarted, configv1.Update{}), Inherited{}).Replaces, "cleared")

	id = Identity{}
	assert.Nil(t, look(installingAt(false), Inherited{}).Waiting)
	assert.Nil(t, look(wants(installingAt(false, partial("1.0.0")), update), Inherited{}).Waiting, "the request was made after the install began")

	id = Identity{}
	assert.Equal(t, waiting, look(wants(installingAt(true, partial("1.0.0")), update), Inherited{}).Waiting, "nothing shows that the request was made later")

	id = Identity{}
	assert.Equal(t, imageOf("1.1.0"), look(installingAt(false), Inherited{Image: imageOf("1.1.0")}).Continues)
	assert.Equal(t, imageOf("1.1.0"), look(wants(installingAt(false, partial("1.1.0")), update), Inherited{}).Continues)
	recreated := installingAt(false)
	recreated.UID = "another"
	found := id.Record(api.ReleaseStatusStatus{})
	assert.Nil(t, Recall(&found, recreated, Of(recreated), request.Target{}, imageOf("1.0.0")).install, "the record is of another ClusterVersion")
	id.install = nil
	assert.Nil(t, look(installingAt(false, completed("1.0.0")), Inherited{}), "no install after a release has completed")
}

func TestRunningReleaseIsKnownDuringAnInstall(t *testing.T) {
	own := imageOf("1.0.0")
	id := Identity{uid: "uid", install: &api.FirstInstall{ClusterVersionUID: "uid"}}
	asked := request.Target{Image: imageOf("1.0.2"), Requested: true}
	for _, tt := range []struct {
		name  string
		cv    *configv1.ClusterVersion
		asked request.Target
		want  request.Target
		ok    bool
	}{
		{name: "returns nothing before the first release", cv: installingAt(false), asked: asked},
		{name: "returns nothing if no other release is requested", cv: installingAt(false, partial("1.0.0")), asked: request.Target{Image: own, Own: true}},
		{name: "returns its own release", cv: wants(installingAt(true, partial("1.0.0")), configv1.Update{Image: asked.Image}), asked: asked, want: request.Target{Image: own, Own: true}, ok: true},
		{name: "returns the replacement", cv: wants(installingAt(true, partial("1.0.1"), partial("1.0.0")), configv1.Update{Image: asked.Image}), asked: asked, want: request.Target{Image: imageOf("1.0.1")}, ok: true},
		{name: "returns nothing if the replacement is requested", cv: installingAt(true, partial("1.0.2"), partial("1.0.0")), asked: asked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := id.Running(tt.cv, own, tt.asked)
			assert.Equal(t, tt.ok, ok)
			assert.Equal(t, tt.want, got)
		})
	}
}
