package serve

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTLSSettingsAreParsed(t *testing.T) {
	for _, test := range []struct {
		name    string
		version string
		suites  []string
		want    TLS
		err     string
	}{
		{name: "keeps missing settings zero"},
		{name: "reads a version", version: "VersionTLS13", want: TLS{MinVersion: tls.VersionTLS13}},
		{
			name: "reads cipher suites, including old ones", suites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", " TLS_RSA_WITH_AES_128_CBC_SHA"},
			want: TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA}},
		},
		{name: "disables TLS 1.2 if only suites of TLS 1.3 are listed", suites: []string{"TLS_AES_128_GCM_SHA256"}, want: TLS{CipherSuites: []uint16{}}},
		{name: "rejects an unknown version", version: "1.2", err: `TLS version "1.2" is unknown: use one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13`},
		{name: "rejects names that are not from IANA", suites: []string{"AES128-SHA"}, err: `cipher suite "AES128-SHA" is unknown`},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			got, err := ParseTLS(test.version, test.suites)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestTLSSettingsFollowTheProfile(t *testing.T) {
	custom := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
		TLSProfileSpec: configv1.TLSProfileSpec{MinTLSVersion: configv1.VersionTLS11, Ciphers: []string{"ECDHE-RSA-AES128-SHA", "tomorrow"}},
	}}
	for _, test := range []struct {
		name      string
		adherence configv1.TLSAdherencePolicy
		profile   *configv1.TLSSecurityProfile
		want      TLS
	}{
		{"does not apply without a policy", "", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, TLS{}},
		{"does not apply with the legacy policy", configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly, custom, TLS{}},
		{"applies to all components with the strict policy", configv1.TLSAdherencePolicyStrictAllComponents, custom, TLS{tls.VersionTLS11, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}},
		{"treats an unknown policy as strict", "Tomorrow", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, TLS{MinVersion: tls.VersionTLS13}},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			assert.Equal(t, test.want, clusterTLS(&configv1.APIServer{Spec: configv1.APIServerSpec{TLSAdherence: test.adherence, TLSSecurityProfile: test.profile}}, parseProfile))
		})
	}
	intermediate := clusterTLS(&configv1.APIServer{Spec: configv1.APIServerSpec{TLSAdherence: configv1.TLSAdherencePolicyStrictAllComponents}}, parseProfile)
	assert.Equal(t, uint16(tls.VersionTLS12), intermediate.MinVersion)
	assert.Len(t, intermediate.CipherSuites, 6)
}

// shake connects as a client with only this version and, below TLS 1.3, only these cipher suites.
func (r *served) shake(t *testing.T, version uint16, suites ...uint16) error {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, CipherSuites: suites, // the test is not about the certificate
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", r.Address())
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestEndpointRejectsOldTLSVersions(t *testing.T) {
	r := newServed(t, Options{})
	require.Error(t, r.shake(t, tls.VersionTLS10))
	require.Error(t, r.shake(t, tls.VersionTLS11))
	require.NoError(t, r.shake(t, tls.VersionTLS12))
	require.NoError(t, r.shake(t, tls.VersionTLS13))
}

func TestEndpointFollowsTLSSettingsOfItsFlags(t *testing.T) {
	given, err := ParseTLS("VersionTLS11", []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"})
	require.NoError(t, err)
	r := newServed(t, Options{TLS: given})
	require.Error(t, r.shake(t, tls.VersionTLS10))
	require.NoError(t, r.shake(t, tls.VersionTLS11, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA))
	require.NoError(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384))
	require.Error(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))

	r = newServed(t, Options{TLS: TLS{MinVersion: tls.VersionTLS13}})
	require.Error(t, r.shake(t, tls.VersionTLS12))
	require.NoError(t, r.shake(t, tls.VersionTLS13))
}

func TestEndpointFollowsTheTLSProfileOfTheCluster(t *testing.T) {
	free := newServed(t, Options{})
	bound := newServed(t, Options{TLS: TLS{MinVersion: tls.VersionTLS12}})
	cluster := dynamic.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	ctx, cancel := context.WithCancel(t.Context())
	for _, r := range []*served{free, bound} {
		watched := make(chan error, 1)
		go func() { watched <- (&tlsProfile{cluster, r.handshakes}).Start(ctx) }()
		defer func() { require.NoError(t, <-watched) }()
	}
	defer cancel()

	// The CRD is created while the operator runs, as with the first release on an empty cluster.
	t.Cleanup(controlPlane.For(t).Serve(t, "0000_10_config-operator_01_apiservers-CustomNoUpgrade.crd.yaml"))
	servers := cluster.Resource(configv1.GroupVersion.WithResource("apiservers"))
	server := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tlsSecurityProfile": map[string]any{"type": "Modern"}}}}
	server.SetGroupVersionKind(configv1.GroupVersion.WithKind("APIServer"))
	server.SetName("cluster")
	_, err := servers.Create(t.Context(), server, metav1.CreateOptions{})
	require.NoError(t, err)
	patch := func(spec string) {
		t.Helper()
		_, err := servers.Patch(t.Context(), "cluster", client.Merge.Type(), []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	accepts := func(r *served, version uint16, suites []uint16) {
		t.Helper()
		require.Eventually(t, func() bool {
			now := r.handshakes.current.Load()
			return now.MinVersion == version && slices.Equal(now.CipherSuites, suites)
		}, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, free.shake(t, tls.VersionTLS12), "without the strict policy, the profile does not apply")

	patch(`{"tlsAdherence": "StrictAllComponents"}`)
	accepts(free, tls.VersionTLS13, nil)
	require.Error(t, free.shake(t, tls.VersionTLS12))
	require.NoError(t, free.shake(t, tls.VersionTLS13))
	require.NoError(t, bound.shake(t, tls.VersionTLS12), "flags take precedence over the profile")

	patch(`{"tlsSecurityProfile": {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS12", "ciphers": ["ECDHE-ECDSA-AES256-GCM-SHA384"]}}}`)
	only := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	for _, r := range []*served{free, bound} {
		accepts(r, tls.VersionTLS12, only)
		require.NoError(t, r.shake(t, tls.VersionTLS12, only...))
		require.Error(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))
		require.NoError(t, r.shake(t, tls.VersionTLS13))
	}

	require.NoError(t, servers.Delete(t.Context(), "cluster", metav1.DeleteOptions{}))
	accepts(free, tls.VersionTLS12, nil)
	require.NoError(t, free.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))
}
