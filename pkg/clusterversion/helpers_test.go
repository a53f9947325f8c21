package clusterversion

import (
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now       = cluster.Now()
	imageOf   = cluster.Image
	digestOf  = cluster.Digest
	completed = cluster.Completed
	partial   = cluster.Partial
	clusterAt = cluster.At
	wants     = cluster.Wants
	files     = cluster.Files
)

// acceptedRelease returns an accepted release with a signature.
func acceptedRelease(version string) accept.Acceptance {
	return accept.Acceptance{
		Target: request.Target{Image: imageOf(version), Version: version}, Step: "PayloadLoaded", Done: true,
		Message:  `Payload loaded version="` + version + `"`,
		Verified: release.Verified{Image: release.Image{Pullspec: imageOf(version), Digest: digestOf(version)}, Evidence: []release.Evidence{{KeyID: "K"}}},
		Update: payload.Update{Payload: &payload.Payload{
			Release: release.Release{Version: version, URL: "https://example.com/" + version, Channels: []string{"stable"}}, Hash: "hash-" + version,
			Manifests: []*manifest.Manifest{{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}}},
		}},
	}
}

func progressOf(version string, done, total int, problems ...report.Problem) *report.Progress {
	return &report.Progress{Release: release.Release{Version: version}, Done: done, Total: total, Complete: done == total, Problems: problems}
}

// said returns a condition as "status|reason|message", "" if it is missing.
func said(status configv1.ClusterVersionStatus, kind configv1.ClusterStatusConditionType) string {
	if c := api.FindCondition(status.Conditions, kind); c != nil {
		return string(c.Status) + "|" + c.Reason + "|" + c.Message
	}
	return ""
}

// apiFailure returns the problem of an object that the API server rejects.
var apiFailure = cluster.APIFailure
