package clusterversion

import (
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// imageOf names the image of a version, by a digest that differs in its last two digits.
func imageOf(version string) string { return "example.com/r@" + string(digestOf(version)) }

func digestOf(version string) release.Digest {
	hex := []byte("sha256:0000000000000000000000000000000000000000000000000000000000000000")
	for i, c := range []byte(version) {
		hex[7+2*i], hex[8+2*i] = "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15]
	}
	return release.Digest(hex)
}

// acceptedRelease is a release that was accepted with a signature.
func acceptedRelease(version string) Acceptance {
	return Acceptance{
		Target: Target{Image: imageOf(version), Version: version}, Step: "PayloadLoaded", Done: true,
		Message:  `Payload loaded version="` + version + `"`,
		Verified: release.Verified{Image: release.Image{Pullspec: imageOf(version), Digest: digestOf(version)}, Evidence: []release.Evidence{{KeyID: "K"}}},
		Payload:  &payload.Payload{Release: release.Release{Version: version, URL: "https://example.com/" + version, Channels: []string{"stable"}}, Hash: "hash-" + version},
	}
}

func entry(version string, state configv1.UpdateState) configv1.UpdateHistory {
	e := configv1.UpdateHistory{State: state, Version: version, Image: imageOf(version), StartedTime: metav1.NewTime(now.Add(-time.Hour)), Verified: true}
	if state == configv1.CompletedUpdate {
		e.CompletionTime = &metav1.Time{Time: now.Add(-50 * time.Minute)}
	}
	return e
}

func completed(version string) configv1.UpdateHistory {
	return entry(version, configv1.CompletedUpdate)
}

func partial(version string) configv1.UpdateHistory { return entry(version, configv1.PartialUpdate) }

// clusterAt is a ClusterVersion with a history, newest first.
func clusterAt(history ...configv1.UpdateHistory) *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", Generation: 7}}
	cv.Status.History = history
	if len(history) > 0 {
		cv.Status.Desired = configv1.Release{Version: history[0].Version, Image: history[0].Image}
	}
	return cv
}

func progressOf(version string, done, total int, problems ...rollout.Problem) *rollout.Progress {
	return &rollout.Progress{Release: release.Release{Version: version}, Done: done, Total: total, Complete: done == total, Problems: problems}
}

// said is a condition as "status|reason|message", "" if it is missing.
func said(status configv1.ClusterVersionStatus, kind configv1.ClusterStatusConditionType) string {
	if c := api.FindCondition(status.Conditions, kind); c != nil {
		return string(c.Status) + "|" + c.Reason + "|" + c.Message
	}
	return ""
}

// files is a small release. More files are given as name and content.
func files(version string, more ...string) fstest.MapFS {
	fsys := fstest.MapFS{
		"manifests/0000_00_a_00.yaml": &fstest.MapFile{Data: []byte("# nothing")},
		"release-manifests/release-metadata": &fstest.MapFile{Data: []byte(
			`{"kind": "cincinnati-metadata-v0", "version": "` + version + `", "metadata": {"url": "https://example.com/` + version + `"}}`)},
		"release-manifests/image-references": &fstest.MapFile{Data: []byte(
			`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "` + version + `"}}`)},
		"release-manifests/0000_10_a_01.yaml": &fstest.MapFile{Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {namespace: ns, name: a, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {version: "` + version + `"}
`)},
	}
	for i := 0; i+1 < len(more); i += 2 {
		fsys[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	return fsys
}

func TestFilesAreARelease(t *testing.T) {
	p, err := payload.Load(files("1.2.3"), imageOf("1.2.3"), payload.Options{})
	require.NoError(t, err)
	require.Len(t, p.Manifests, 1)
}
