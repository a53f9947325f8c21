package integration_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// tiny builds releases with two components, a at runlevel 10 and b at runlevel 20. Each has a ConfigMap, a Deployment and a ClusterOperator
// in its own namespace.
type tiny struct{ definitions fstest.MapFS }

func newTiny(t *testing.T) tiny {
	t.Helper()
	names, err := fs.Glob(manifests.FS(), "*_01_*.crd.yaml")
	require.NoError(t, err)
	out := fstest.MapFS{}
	for _, name := range names {
		data, err := fs.ReadFile(manifests.FS(), name)
		require.NoError(t, err)
		out["manifests/"+name] = &fstest.MapFile{Data: data}
	}
	require.Len(t, out, 2)
	return tiny{out}
}

const component = `
apiVersion: v1
kind: Namespace
metadata: {name: tiny-$NAME, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: tiny-$NAME, name: settings, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {version: "$VERSION"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: tiny-$NAME, name: tiny-$NAME-operator, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  selector: {matchLabels: {app: $NAME}}
  template:
    metadata: {labels: {app: $NAME}}
    spec:
      containers:
      - {name: operator, image: example.com/operator, env: [{name: RELEASE_VERSION, value: "$VERSION"}]}
---
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: tiny-$NAME, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec: {}
status:
  versions: [{name: operator, version: "$VERSION"}]
  relatedObjects: [{group: "", resource: namespaces, name: tiny-$NAME}]
`

func (r tiny) files(version string) fs.FS {
	fsys := fstest.MapFS{
		"release-manifests/release-metadata": &fstest.MapFile{Data: fmt.Appendf(nil, `{"kind": "cincinnati-metadata-v0", "version": %q}`, version)},
		"release-manifests/image-references": &fstest.MapFile{Data: fmt.Appendf(nil, `{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": %q}}`, version)},
	}
	maps.Copy(fsys, r.definitions)
	for level, name := range map[int]string{10: "a", 20: "b"} {
		fsys[fmt.Sprintf("release-manifests/0000_%d_tiny-%s_01.yaml", level, name)] = &fstest.MapFile{
			Data: []byte(strings.NewReplacer("$NAME", name, "$VERSION", version).Replace(component)),
		}
	}
	return fsys
}

// testPlatform is a cluster that TestRequestsAreAnsweredInTheClusterVersion takes through several chapters.
type testPlatform struct {
	*platform
	// book is the whole test; platform.t is the test of the current chapter.
	book  *testing.T
	tiny  tiny
	own   release.Image
	cvo   *process
	other *fixture.Signer
	// address is the address of the operator's report; empty for none.
	address string
	// chronicle records the status by chapter.
	chronicle *chronicle
	// actors is the process that plays the platform's operators.
	actors *process
}

// release pushes a release to its own repository, so that requests for it can be counted.
func (l *testPlatform) release(version string, signer *fixture.Signer) release.Image {
	l.t.Helper()
	img, err := fixture.PushRelease(l.t.Context(), l.registry, l.tiny.files(version), "platform/v"+version+":1")
	require.NoError(l.t, err)
	if l.chronicle != nil {
		l.chronicle.name(img.ByDigest(), "<release "+version+">")
		l.chronicle.name(img.Pullspec, "<release "+version+" by tag>")
		l.chronicle.name(string(img.Digest), "<digest of "+version+">")
	}
	if signer != nil {
		_, err := signer.WriteSignature(l.store(), img)
		require.NoError(l.t, err)
	}
	return img
}

// at returns a condition that holds when the cluster has completed a version.
func at(version string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		return completed(version)(cv) && condition(cv, configv1.OperatorProgressing) == "False||Cluster version is "+version &&
			cv.Status.ObservedGeneration == cv.Generation
	}
}

// says returns a condition that holds when a status condition begins with a prefix.
func says(kind configv1.ClusterStatusConditionType, prefix string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool { return strings.HasPrefix(condition(cv, kind), prefix) }
}

// refused waits until the cluster rejects an image and returns the message.
func (l *testPlatform) refused(reason, image string) string {
	l.t.Helper()
	cv := l.await("the release to be rejected", 30*time.Second, func(cv *configv1.ClusterVersion) bool {
		c := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(c, "False|"+reason+"|") && strings.Contains(c, image)
	})
	assert.True(l.t, strings.HasPrefix(condition(cv, configv1.OperatorProgressing), "False||Cluster version is "), "the other manifests continue")
	assert.Equal(l.t, "False||", condition(cv, api.Failing))
	return condition(cv, api.ReleaseAccepted)
}

// settings returns the version in a component's ConfigMap and the ConfigMap's resource version.
func (l *testPlatform) settings(component string) (version, resourceVersion string) {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Namespace: "tiny-" + component, Name: "settings"}, u))
	version, _, _ = unstructured.NestedString(u.Object, "data", "version")
	return version, u.GetResourceVersion()
}

func (l *testPlatform) get() *configv1.ClusterVersion {
	l.t.Helper()
	cv := &configv1.ClusterVersion{}
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Name: "version"}, cv))
	return cv
}

// edit edits the spec as an administrator does.
func (l *testPlatform) edit(change func(spec *configv1.ClusterVersionSpec)) {
	l.t.Helper()
	cv := l.get()
	patch := client.MergeFrom(cv.DeepCopy())
	change(&cv.Spec)
	require.NoError(l.t, l.client.Patch(l.t.Context(), cv, patch))
}

func (l *testPlatform) cancel() {
	l.t.Helper()
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.DesiredUpdate = nil })
}

// logged waits until the operator has logged a text.
func (l *testPlatform) logged(what string) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		data, err := os.ReadFile(l.cvo.log)
		return err == nil && strings.Contains(string(data), what)
	}, patience, 50*time.Millisecond, what)
}

// restart kills the operator and starts another.
func (l *testPlatform) restart() {
	l.t.Helper()
	l.cvo.kill()
	l.releaseLease()
	l.succeed()
}

// handOver stops the operator gracefully and starts another, which continues at once.
func (l *testPlatform) handOver() {
	l.t.Helper()
	l.cvo.end(l.t)
	l.succeed()
}

// handToNextOperator starts another operator after a chapter and checks that the status stays the same.
func (l *testPlatform) handToNextOperator(chapter string) {
	l.t.Helper()
	refused := says(api.ReleaseAccepted, "False|")(l.get())
	l.handOver()
	l.logged("rollout started")
	if refused {
		l.logged("release not accepted")
	}
	l.chronicle.settled(l.t, l.client)
	assert.Empty(l.t, l.chronicle.chapter(), "changes after the start of an operator, chapter %q", chapter)
}

func (l *testPlatform) succeed() {
	l.t.Helper()
	chapter := l.t
	l.t = l.book // the process outlives the chapter
	l.cvo = l.operator(l.own.ByDigest(), "--listen", l.address)
	l.t = chapter
}

// awaitReport waits until the report of the operator contains the text.
func (l *testPlatform) awaitReport(text string) {
	l.t.Helper()
	assert.EventuallyWithT(l.t, func(c *assert.CollectT) {
		out, err := l.run("status", "--server", "https://"+l.address)
		require.NoError(c, err)
		assert.Contains(c, out, text)
	}, time.Minute, 200*time.Millisecond)
}

// install installs the own release, starts all operators, and waits until the version has completed.
func (l *testPlatform) install(version string) *configv1.ClusterVersion {
	l.t.Helper()
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(l.t, err)
	l.succeed()
	l.start("operators")
	return l.await(version+" to complete", time.Minute, at(version))
}

// TestRequestsAreAnsweredInTheClusterVersion takes a cluster through valid and invalid requests of administrators.
//
//threat:overrides ignores an overridden object
func TestRequestsAreAnsweredInTheClusterVersion(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	var err error
	l.other, err = fixture.NewSigner("stranger", fixture.SignerOptions{})
	require.NoError(t, err)
	l.tiny.definitions["release-manifests/0000_30_console_01.yaml"] = optional("console", api.CapabilityAnnotation, "Console")
	l.tiny.definitions["release-manifests/0000_30_sparkle_01.yaml"] = optional("sparkle", api.FeatureGateAnnotation, "Sparkle")
	l.own = l.release("4.2.0", l.signer)
	_, err = l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.chronicle = keepChronicle(t, l.client)
	l.chronicle.name(l.own.ByDigest(), "<release 4.2.0>")
	l.chronicle.name(l.dir, "<folder>")
	l.chronicle.name(l.signer.KeyID(), "<key of platform>")
	l.chronicle.name(l.other.KeyID(), "<key of stranger>")
	l.actors = l.start("operators", "--fail", "tiny-b@4.3.0", "--fail", "tiny-b@4.4.0", "--fail", "tiny-b@4.4.1")
	l.create(rolloutDefinition)
	l.create(statusDefinition) // without it, requests by tag are rejected and force is not recorded
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	})
	l.cvo = l.operator(l.own.ByDigest())
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	l.chronicle.settled(t, l.client)
	book := &strings.Builder{}
	fmt.Fprintf(book, "installs a release\n%s", l.chronicle.chapter())

	for _, chapter := range []struct {
		name string
		run  func(*testing.T, *testPlatform)
	}{
		{"rejects an unsigned image", unsignedImage},
		{"rejects an image with an unknown signer", wrongKey},
		{"rejects a tampered layer", tamperedLayer},
		{"reports an invalid spec", invalidSpec},
		{"updates to a version in the history", versionInHistory},
		{"rejects an older release", rollbackRefused},
		{"accepts an older release with force", forced},
		{"keeps a forced release after a restart", restartAfterForce},
		{"keeps a rejection after a restart", restartWhileRefused},
		{"changes the target during an update", retarget},
		{"goes back when an update is canceled", canceled},
		{"updates to a tag once", tag},
		{"ignores an overridden object", override},
		{"recovers with a failed operator", healed},
		{"continues after restarts at every step", restarts},
		{"stays responsive with a slow registry", slowRegistry},
		{"waits for an acknowledgement before a minor version", acknowledged},
		{"enables a capability", capability},
		{"applies a feature gate", featureGate},
		{"pauses an update", pause},
		{"stays paused after a restart", restartWhilePaused},
	} {
		passed := t.Run(chapter.name, func(t *testing.T) {
			l.t = t
			defer func() { l.t = l.book }()
			chapter.run(t, l)
		})
		require.True(t, passed, "the next chapters depend on this one")
		l.chronicle.settled(t, l.client)
		fmt.Fprintf(book, "%s\n%s", chapter.name, l.chronicle.chapter())
		l.handToNextOperator(chapter.name)
	}
	golden.Assert(t, "clusterversion", book.String())
}

func unsignedImage(t *testing.T, l *testPlatform) {
	img := l.release("4.2.1", nil)
	_, before := l.settings("a")
	l.registry.Reset()
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("RetrievePayload", img.ByDigest())
	assert.Contains(t, message, `Retrieving payload failed version="" image="`+img.ByDigest()+`" failure=The update cannot be verified: unable to verify `+string(img.Digest)+" against keyrings: verifier-public-key-platform")
	assert.Contains(t, message, "file://"+l.store(), "the message names the store")
	assert.Contains(t, message, "no signature found")
	assert.Contains(t, message, "its publisher signs it with 'cvo release sign'")
	assert.Zero(t, l.registry.Count("GET", "/v4.2.1/blobs/"), "nothing of the image is read")
	_, after := l.settings("a")
	assert.Equal(t, before, after)
	cv := l.get()
	assert.Len(t, cv.Status.History, 1)
	assert.Equal(t, "4.2.0", cv.Status.Desired.Version)
}

func wrongKey(t *testing.T, l *testPlatform) {
	img := l.release("4.2.2", l.other)
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("RetrievePayload", img.ByDigest())
	assert.Contains(t, message, "The update cannot be verified")
	assert.Contains(t, message, l.other.KeyID(), "the message names the key")
	assert.Len(t, l.get().Status.History, 1)
}

func tamperedLayer(t *testing.T, l *testPlatform) {
	img := l.release("4.2.3", l.signer)
	heal := l.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/v4.2.3/blobs/"), Rewrite: func(body []byte) []byte {
		changed := append([]byte{}, body...)
		changed[len(changed)/2] ^= 1
		return changed
	}})
	l.update(configv1.Update{Image: img.ByDigest()})
	message := l.refused("RetrievePayload", img.ByDigest())
	assert.Contains(t, message, "Unable to download and prepare the update: ")
	assert.Len(t, l.get().Status.History, 1)
	heal()
	cv := l.await("4.2.3 to complete after the registry is repaired", time.Minute, at("4.2.3"))
	assert.True(t, cv.Status.History[0].Verified)
	version, _ := l.settings("b")
	assert.Equal(t, "4.2.3", version)
}

func invalidSpec(t *testing.T, l *testPlatform) {
	l.update(configv1.Update{Version: "9.9.9"})
	cv := l.await("the spec to be reported as invalid", 20*time.Second, says(configv1.OperatorProgressing, "False|InvalidClusterVersion|Stopped at 4.2.3: the cluster version is invalid"))
	assert.Equal(t, `True|InvalidClusterVersion|The cluster version is invalid: spec.desiredUpdate.version: Invalid value: "9.9.9": when image is empty the update must be an available update`, condition(cv, api.Invalid))
	assert.Len(t, cv.Status.History, 2)
	l.cancel()
	cv = l.await("the spec to be valid again", 20*time.Second, at("4.2.3"))
	assert.Empty(t, condition(cv, api.Invalid))
	assert.Len(t, cv.Status.History, 2)
}

func versionInHistory(t *testing.T, l *testPlatform) {
	l.update(configv1.Update{Version: "4.2.0"})
	cv := l.await("the rollback to 4.2.0", time.Minute, at("4.2.0"))
	assert.Equal(t, l.own.ByDigest(), cv.Status.History[0].Image)
	assert.Equal(t, []string{"4.2.0", "4.2.3", "4.2.0"}, versions(cv))
	l.update(configv1.Update{Version: "4.2.3"})
	l.await("4.2.3 to complete again", time.Minute, at("4.2.3"))
}

func versions(cv *configv1.ClusterVersion) []string {
	var list []string
	for _, e := range cv.Status.History {
		list = append(list, e.Version)
	}
	return list
}

func rollbackRefused(t *testing.T, l *testPlatform) {
	img := l.release("4.1.0", l.signer)
	l.update(configv1.Update{Image: img.ByDigest(), Version: "4.1.0"})
	message := l.refused("PreconditionChecks", img.ByDigest())
	assert.Contains(t, message, `Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion": 4.1.0 is less than the current target 4.2.3`)
	assert.Len(t, l.get().Status.History, 4)
}

func forced(t *testing.T, l *testPlatform) {
	img := l.release("4.1.1", nil)
	l.update(configv1.Update{Image: img.ByDigest(), Version: "4.1.1", Force: true})
	cv := l.await("4.1.1 to complete with force", time.Minute, at("4.1.1"))
	h := cv.Status.History[0]
	assert.False(t, h.Verified)
	assert.Contains(t, h.AcceptedRisks, `cannot be verified, but continuing anyway because the update was forced: unable to verify `+string(img.Digest))
	assert.Contains(t, h.AcceptedRisks, "Forced through blocking failures: ")
	assert.Contains(t, h.AcceptedRisks, `Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion"`)
}

func restartAfterForce(t *testing.T, l *testPlatform) {
	l.cancel()
	before := l.await("the spec to be observed", 20*time.Second, at("4.1.1"))
	l.restart()
	l.logged("rollout started")
	cv := l.await("4.1.1 to stay", 20*time.Second, func(cv *configv1.ClusterVersion) bool {
		return at("4.1.1")(cv) && says(api.ReleaseAccepted, "True|PayloadLoaded|")(cv)
	})
	assert.Equal(t, versions(before), versions(cv))
	assert.Equal(t, before.Status.History[0].AcceptedRisks, cv.Status.History[0].AcceptedRisks)
}

func restartWhileRefused(t *testing.T, l *testPlatform) {
	next := l.release("4.2.5", l.signer)
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("4.2.5", time.Minute, at("4.2.5"))
	bad := l.release("4.2.6", nil)
	l.update(configv1.Update{Image: bad.ByDigest()})
	l.refused("RetrievePayload", bad.ByDigest())
	before := l.get()
	l.restart()
	l.logged(`"release":"4.2.5","mode":"Reconciling"`)
	l.logged("release not accepted")
	l.refused("RetrievePayload", bad.ByDigest())
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorAvailable, configv1.OperatorProgressing, api.Failing} {
		assert.Equal(t, transition(before, kind), transition(l.get(), kind), "%s does not change in between", kind)
	}
	l.cancel()
	l.await("4.2.5 to stay", 20*time.Second, func(cv *configv1.ClusterVersion) bool {
		return at("4.2.5")(cv) && says(api.ReleaseAccepted, "True|")(cv)
	})
}

func transition(cv *configv1.ClusterVersion, kind configv1.ClusterStatusConditionType) time.Time {
	for _, c := range cv.Status.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.UTC()
		}
	}
	return time.Time{}
}

// stuck requests a release whose second operator fails, and waits until it blocks the update.
func (l *testPlatform) stuck(version string) {
	l.t.Helper()
	img := l.release(version, l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	cv := l.await(version+" to be blocked", time.Minute, says(api.Failing, "True|ClusterOperatorNotAvailable|Cluster operator tiny-b is not available"))
	assert.Equal(l.t, "True|ClusterOperatorNotAvailable|Unable to apply "+version+": the cluster operator tiny-b is not available", condition(cv, configv1.OperatorProgressing))
	assert.Equal(l.t, configv1.PartialUpdate, cv.Status.History[0].State)
	assert.True(l.t, says(configv1.OperatorAvailable, "True||Done applying ")(cv))
}

func retarget(t *testing.T, l *testPlatform) {
	l.stuck("4.3.0")
	img := l.release("4.3.1", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	cv := l.await("4.3.1 to complete instead", time.Minute, at("4.3.1"))
	assert.Equal(t, []string{"4.3.1", "4.3.0", "4.2.5"}, versions(cv)[:3])
	assert.Equal(t, configv1.PartialUpdate, cv.Status.History[1].State)
	assert.NotNil(t, cv.Status.History[1].CompletionTime)
}

func canceled(t *testing.T, l *testPlatform) {
	l.stuck("4.4.0")
	version, _ := l.settings("a")
	assert.Equal(t, "4.4.0", version)
	l.cancel()
	cv := l.await("the rollback to 4.3.1", time.Minute, at("4.3.1"))
	assert.Equal(t, []string{"4.3.1", "4.4.0", "4.3.1"}, versions(cv)[:3])
	version, _ = l.settings("a")
	assert.Equal(t, "4.3.1", version)
}

func tag(t *testing.T, l *testPlatform) {
	img := l.release("4.3.2", l.signer)
	l.update(configv1.Update{Image: img.Pullspec})
	cv := l.await("4.3.2 to complete by its tag", time.Minute, at("4.3.2"))
	assert.Equal(t, img.ByDigest(), cv.Status.Desired.Image, "the status has the digest")
	assert.Equal(t, img.ByDigest(), cv.Status.History[0].Image)
	assert.Contains(t, condition(cv, api.ReleaseAccepted), `image="`+img.Pullspec+`"`)

	moved, err := fixture.PushRelease(t.Context(), l.registry, l.tiny.files("4.3.3"), "platform/v4.3.2:1")
	require.NoError(t, err)
	_, err = l.signer.WriteSignature(l.store(), moved)
	require.NoError(t, err)
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "stable" })
	cv = l.await("the spec to be observed", 20*time.Second, at("4.3.2"))
	assert.Equal(t, img.ByDigest(), cv.Status.Desired.Image, "a moved tag does not update the cluster")
	l.cancel()
	l.await("the spec to be observed", 20*time.Second, at("4.3.2"))

	l.handOver()
	l.await("the release to be known only by its digest", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, api.ReleaseAccepted), `image="`+img.ByDigest()+`"`)
	})
}

func override(t *testing.T, l *testPlatform) {
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "tiny-a", Name: "settings", Unmanaged: true}}
	})
	l.await("the override to be reported", time.Minute, says(configv1.OperatorUpgradeable, "False|ClusterVersionOverridesSet|"))
	img := l.release("4.3.4", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await("4.3.4", time.Minute, at("4.3.4"))
	left, _ := l.settings("a")
	taken, _ := l.settings("b")
	assert.Equal(t, []string{"4.3.2", "4.3.4"}, []string{left, taken}, "overridden objects are ignored")

	l.registry.Reset()
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = nil })
	require.Eventually(t, func() bool {
		version, _ := l.settings("a")
		return version == "4.3.4"
	}, patience, 20*time.Millisecond)
	assert.Empty(t, l.registry.Requests(), "an override causes no request to the registry")
	cv := l.await("the spec to be observed", 20*time.Second, at("4.3.4"))
	assert.Equal(t, "4.3.4", versions(cv)[0])
}

// healed repairs a failed platform operator while the update waits for it.
func healed(t *testing.T, l *testPlatform) {
	l.stuck("4.4.1")
	l.t = l.book // the actors outlive the chapter
	l.actors.kill()
	l.actors = l.start("operators")
	l.t = t
	l.await("4.4.1 to complete after its operator is repaired", time.Minute, at("4.4.1"))
}

// restarts restarts the operator after each change of its status. The record of the whole update must be the same as without restarts.
func restarts(t *testing.T, l *testPlatform) {
	reported := make(chan string, 100)
	l.chronicle.listen(func(track, line string) { reported <- track + " " + line })
	defer l.chronicle.listen(nil)
	img := l.release("4.4.2", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	count := 0
	for complete := at("4.4.2"); !complete(l.get()); {
		select {
		case <-reported:
			if count++; count <= 4 {
				l.handOver()
			}
		case <-time.After(time.Minute):
			require.FailNow(t, "the status stopped changing")
		}
	}
	assert.GreaterOrEqual(t, count, 4, "an update has more status changes")
}

func slowRegistry(t *testing.T, l *testPlatform) {
	slow := l.release("4.4.3", l.signer)
	l.registry.AddFault(fixture.Fault{Match: fixture.MatchPath("/v4.4.3/"), Delay: time.Hour})
	l.update(configv1.Update{Image: slow.ByDigest()})
	l.await("the download to begin", 20*time.Second, says(api.ReleaseAccepted, "Unknown|RetrievePayload|Retrieving and verifying payload"))
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "fast" })
	cv := l.await("the edit to be observed during the download", 10*time.Second, func(cv *configv1.ClusterVersion) bool {
		return cv.Spec.Channel == "fast" && cv.Status.ObservedGeneration == cv.Generation
	})
	assert.True(t, says(api.ReleaseAccepted, "Unknown|RetrievePayload|")(cv))
	assert.Equal(t, "False||Cluster version is 4.4.2", condition(cv, configv1.OperatorProgressing))

	img := l.release("4.4.4", l.signer)
	l.update(configv1.Update{Image: img.ByDigest()})
	l.await("4.4.4 to complete without the slow release", time.Minute, at("4.4.4"))
}
