package outside

import (
	"net/http"
	"sync/atomic"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// TestNewKindsAreReadWithoutWaiting reads kinds whose definitions are new, as at the first update after an install. The API
// server still initializes its caches of them.
func TestNewKindsAreReadWithoutWaiting(t *testing.T) {
	cluster := controlPlane.For(t)
	for _, file := range []string{
		"0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml", "0000_10_config-operator_01_imagetagmirrorsets.crd.yaml",
		"0000_10_config-operator_01_clusterimagepolicies.crd.yaml",
	} {
		cluster.Serve(t, file)
	}
	var rejected atomic.Int32
	config := cluster.Config("test")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusTooManyRequests {
				rejected.Add(1)
			}
			return resp, err
		})
	})
	reader, err := client.New(config, client.Options{Scheme: trustScheme(t)})
	require.NoError(t, err)
	file, err := policy.Parse("file.pub", publicKeyPEM(t))
	require.NoError(t, err)
	outside, err := Open(t.Context(), nil, reader, &configv1.ClusterVersion{}, Options{Policy: &file})
	require.NoError(t, err)
	_, err = outside.trust(t.Context(), requested, nil)
	require.NoError(t, err)
	assert.Zero(t, rejected.Load(), "a rejected list waits a second")
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
