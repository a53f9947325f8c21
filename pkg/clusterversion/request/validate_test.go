package request_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

//threat:clusterversion-holds-nonsense
func TestInvalidFieldsAreCleared(t *testing.T) {
	const id = "5f0c1d3e-2b4a-4c6d-8e9f-0a1b2c3d4e5f"
	for _, tt := range []struct {
		name string
		edit func(cv *configv1.ClusterVersion)
		want []string
		// keeps reports that the spec does not change.
		keeps bool
	}{
		{name: "accepts an empty spec", edit: func(*configv1.ClusterVersion) {}, keeps: true},
		{name: "accepts a cluster ID", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = id }, keeps: true},
		{
			name: "clears a cluster ID that is not a UUID", edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "x" },
			want: []string{`spec.clusterID: Invalid value: "x": must be an RFC4122-variant UUID`},
		},
		{
			name: "clears a cluster ID of version 1",
			edit: func(cv *configv1.ClusterVersion) { cv.Spec.ClusterID = "5f0c1d3e-2b4a-1c6d-8e9f-0a1b2c3d4e5f" },
			want: []string{`spec.clusterID: Invalid value: "5f0c1d3e-2b4a-1c6d-8e9f-0a1b2c3d4e5f": must be an RFC4122-variant UUID`},
		},
		{
			name: "clears an upstream that is not a URL", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Upstream = "http://[" },
			want: []string{`spec.upstream: Invalid value: "http://[": must be a valid URL or empty`},
		},
		{
			name: "rejects a name that is not a DNS label", keeps: true, edit: func(cv *configv1.ClusterVersion) { cv.Name = "4.x" },
			want: []string{`metadata.name: Invalid value: "4.x": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`},
		},
		{
			name: "clears an empty update", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Force: true}) },
			want: []string{"spec.desiredUpdate: Required value: must specify architecture, version, or image"},
		},
		{
			name: "clears an invalid version", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Version: "v1.1", Image: "x"}) },
			want: []string{`spec.desiredUpdate.version: Invalid value: "v1.1": must be a semantic version (1.2.3[-...])`},
		},
		{
			name: "clears an unknown version", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Version: "9.9.9"}) },
			want: []string{`spec.desiredUpdate.version: Invalid value: "9.9.9": when image is empty the update must be an available update`},
		},
		{
			name: "clears a version with several images", edit: func(cv *configv1.ClusterVersion) {
				cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.0.0", Image: "another"}}
				wants(cv, configv1.Update{Version: "1.0.0"})
			},
			want: []string{`spec.desiredUpdate.version: Invalid value: "1.0.0": there are multiple possible payloads for this version, specify the exact image`},
		},
		{name: "accepts a version in the history", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Version: "1.0.0"}) }, keeps: true},
		{
			name: "accepts a version among the conditional updates", keeps: true, edit: func(cv *configv1.ClusterVersion) {
				cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.1.0", Image: "x"}}}
				wants(cv, configv1.Update{Version: "1.1.0"})
			},
		},
		{
			name: "accepts a list of accepted risks alone", keeps: true,
			edit: func(cv *configv1.ClusterVersion) {
				wants(cv, configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "A"}}})
			},
		},
		{
			name: "accepts several architectures of the current version", keeps: true, edit: func(cv *configv1.ClusterVersion) {
				cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.0.0", Image: "multi", Architecture: "Multi"}}
				wants(cv, configv1.Update{Architecture: "Multi"})
			},
		},
		{
			name: "clears several architectures without an available image", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Architecture: "Multi"}) },
			want: []string{`spec.desiredUpdate.version: Invalid value: "1.0.0": when image is empty the update must be an available update`},
		},
		{
			name: "clears several architectures of a version with a single-architecture image", edit: func(cv *configv1.ClusterVersion) {
				cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.1.0", Image: "x"}}
				wants(cv, configv1.Update{Architecture: "Multi", Version: "1.1.0"})
			},
			want: []string{`spec.desiredUpdate.version: Invalid value: "1.1.0": when image is empty the update must be an available update`},
		},
		{name: "accepts an image alone", edit: func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: "x"}) }, keeps: true},
		{
			name: "clears an architecture together with an image", edit: func(cv *configv1.ClusterVersion) {
				wants(cv, configv1.Update{Image: "x", Architecture: "Multi", Version: "1.0.0"})
			},
			want: []string{"spec.desiredUpdate.architecture: Forbidden: cannot be set together with image: the image has its architecture"},
		},
		{
			name: "reports all errors at once", edit: func(cv *configv1.ClusterVersion) {
				cv.Spec.ClusterID, cv.Spec.Upstream = "x", "http://["
				wants(cv, configv1.Update{Version: "x"})
			},
			want: []string{
				`spec.upstream: Invalid value: "http://[": must be a valid URL or empty`,
				`spec.clusterID: Invalid value: "x": must be an RFC4122-variant UUID`,
				`spec.desiredUpdate.version: Invalid value: "x": must be a semantic version (1.2.3[-...])`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(completed("1.0.0"))
			tt.edit(cv)
			spec := cv.Spec.DeepCopy()
			var got []string
			for _, err := range request.Validate(cv) {
				got = append(got, err.Error())
			}
			assert.Equal(t, tt.want, got)
			if tt.keeps {
				assert.Equal(t, *spec, cv.Spec)
			} else {
				assert.Equal(t, configv1.ClusterVersionSpec{}, cv.Spec, "invalid fields are cleared")
			}
		})
	}
}
