package operator

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

func TestParseTLS(t *testing.T) {
	for _, test := range []struct {
		name    string
		version string
		suites  []string
		want    TLS
		err     string
	}{
		{name: "leaves open what is not given"},
		{name: "reads a version", version: "VersionTLS13", want: TLS{MinVersion: tls.VersionTLS13}},
		{
			name: "reads cipher suites, the old ones too", suites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", " TLS_RSA_WITH_AES_128_CBC_SHA"},
			want: TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA}},
		},
		{name: "leaves nothing of TLS 1.2 where only suites of TLS 1.3 are named", suites: []string{"TLS_AES_128_GCM_SHA256"}, want: TLS{CipherSuites: []uint16{}}},
		{name: "refuses another version", version: "1.2", err: `TLS version "1.2" is unknown: use one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13`},
		{name: "refuses names that are not IANA's", suites: []string{"AES128-SHA"}, err: `cipher suite "AES128-SHA" is unknown`},
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

func TestProfileTLS(t *testing.T) {
	custom := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
		TLSProfileSpec: configv1.TLSProfileSpec{MinTLSVersion: configv1.VersionTLS11, Ciphers: []string{"ECDHE-RSA-AES128-SHA", "tomorrow"}},
	}}
	for _, test := range []struct {
		name      string
		adherence configv1.TLSAdherencePolicy
		profile   *configv1.TLSSecurityProfile
		want      TLS
	}{
		{"wants nothing of components that have never followed it", "", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, TLS{}},
		{"wants nothing where that is said", configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly, custom, TLS{}},
		{"is for all where it is strict", configv1.TLSAdherencePolicyStrictAllComponents, custom, TLS{tls.VersionTLS11, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}},
		{"is strict if it says what nobody knows yet", "Tomorrow", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, TLS{MinVersion: tls.VersionTLS13}},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			assert.Equal(t, test.want, profileTLS(&configv1.APIServer{Spec: configv1.APIServerSpec{TLSAdherence: test.adherence, TLSSecurityProfile: test.profile}}))
		})
	}
	intermediate := profileTLS(&configv1.APIServer{Spec: configv1.APIServerSpec{TLSAdherence: configv1.TLSAdherencePolicyStrictAllComponents}})
	assert.Equal(t, uint16(tls.VersionTLS12), intermediate.MinVersion)
	assert.Len(t, intermediate.CipherSuites, 6)
}

// shake connects as a client that speaks no other version and, below TLS 1.3, no other cipher suite.
func (r *replica) shake(t *testing.T, version uint16, suites ...uint16) error {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, CipherSuites: suites, //nolint:gosec // who serves is not what this is about
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", r.listener.Addr().String())
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestEndpointAcceptsHandshakesOfSafeVersions(t *testing.T) {
	r := newReplica(t, Options{})
	require.Error(t, r.shake(t, tls.VersionTLS10))
	require.Error(t, r.shake(t, tls.VersionTLS11))
	require.NoError(t, r.shake(t, tls.VersionTLS12))
	require.NoError(t, r.shake(t, tls.VersionTLS13))
}

func TestEndpointAcceptsTheHandshakesItIsStartedWith(t *testing.T) {
	given, err := ParseTLS("VersionTLS11", []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"})
	require.NoError(t, err)
	r := newReplica(t, Options{TLS: given})
	require.Error(t, r.shake(t, tls.VersionTLS10))
	require.NoError(t, r.shake(t, tls.VersionTLS11, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA))
	require.NoError(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384))
	require.Error(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))

	r = newReplica(t, Options{TLS: TLS{MinVersion: tls.VersionTLS13}})
	require.Error(t, r.shake(t, tls.VersionTLS12))
	require.NoError(t, r.shake(t, tls.VersionTLS13))
}

func TestEndpointFollowsTheTLSProfileOfTheCluster(t *testing.T) {
	free := newReplica(t, Options{})
	bound := newReplica(t, Options{TLS: TLS{MinVersion: tls.VersionTLS12}})
	cluster := dynamic.NewForConfigOrDie(controlPlane.Config("test"))
	ctx, cancel := context.WithCancel(t.Context())
	for _, r := range []*replica{free, bound} {
		watched := make(chan error, 1)
		go func() { watched <- (&tlsProfile{cluster, r.handshakes}).Start(ctx) }()
		defer func() { require.NoError(t, <-watched) }()
	}
	defer cancel()

	// The definition comes while the operator runs, as it does with the first release on a bare cluster.
	t.Cleanup(serveKind(t, "0000_10_config-operator_01_apiservers-CustomNoUpgrade.crd.yaml"))
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
	accepts := func(r *replica, version uint16, suites []uint16) {
		t.Helper()
		require.Eventually(t, func() bool {
			now := r.handshakes.current.Load()
			return now.MinVersion == version && slices.Equal(now.CipherSuites, suites)
		}, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, free.shake(t, tls.VersionTLS12), "a profile is for others until it says that it is for all")

	patch(`{"tlsAdherence": "StrictAllComponents"}`)
	accepts(free, tls.VersionTLS13, nil)
	require.Error(t, free.shake(t, tls.VersionTLS12))
	require.NoError(t, free.shake(t, tls.VersionTLS13))
	require.NoError(t, bound.shake(t, tls.VersionTLS12), "what it was started with comes first")

	patch(`{"tlsSecurityProfile": {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS12", "ciphers": ["ECDHE-ECDSA-AES256-GCM-SHA384"]}}}`)
	only := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	for _, r := range []*replica{free, bound} {
		accepts(r, tls.VersionTLS12, only)
		require.NoError(t, r.shake(t, tls.VersionTLS12, only...))
		require.Error(t, r.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))
		require.NoError(t, r.shake(t, tls.VersionTLS13))
	}

	require.NoError(t, servers.Delete(t.Context(), "cluster", metav1.DeleteOptions{}))
	accepts(free, tls.VersionTLS12, nil)
	require.NoError(t, free.shake(t, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))
}
