package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// TLS restricts the handshakes that the endpoint accepts. Zero fields follow the cluster's TLS profile. Without one, the endpoint accepts
// TLS 1.2 and later with Go's secure cipher suites.
type TLS struct {
	// MinVersion is the minimum version, such as tls.VersionTLS12.
	MinVersion uint16
	// CipherSuites contains the suites for TLS 1.2 and earlier; nil for Go's choice, empty for none. The suites for TLS 1.3 are always Go's
	// choice.
	CipherSuites []uint16
}

// TLSVersions returns the names of the versions that ParseTLS accepts, lowest first.
func TLSVersions() []string {
	return []string{
		string(configv1.VersionTLS10), string(configv1.VersionTLS11), string(configv1.VersionTLS12), string(configv1.VersionTLS13),
	}
}

// TLSCipherSuites returns the IANA names of the cipher suites that ParseTLS accepts.
func TLSCipherSuites() []string {
	var names []string
	for _, suite := range cipherSuites() {
		names = append(names, suite.Name)
	}
	return names
}

func cipherSuites() []*tls.CipherSuite {
	return slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
}

// ParseTLS parses a version such as VersionTLS12, and IANA names of cipher suites. Empty arguments result in zero fields.
func ParseTLS(minVersion string, suites []string) (TLS, error) {
	var t TLS
	if minVersion != "" {
		if t.MinVersion = tlsVersion(minVersion); t.MinVersion == 0 {
			return TLS{}, fmt.Errorf("TLS version %q is unknown: use one of %s", minVersion, strings.Join(TLSVersions(), ", "))
		}
	}
	for _, name := range suites {
		suite := cipherSuite(strings.TrimSpace(name))
		if suite == nil {
			return TLS{}, fmt.Errorf("cipher suite %q is unknown: use IANA names, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name)
		}
		t.add(suite)
	}
	return t, nil
}

// add accepts a cipher suite. A suite of TLS 1.3 only makes the list non-nil, which excludes all suites that are not listed.
func (t *TLS) add(suite *tls.CipherSuite) {
	if t.CipherSuites == nil {
		t.CipherSuites = []uint16{}
	}
	if slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
		t.CipherSuites = append(t.CipherSuites, suite.ID)
	}
}

func cipherSuite(name string) *tls.CipherSuite {
	for _, suite := range cipherSuites() {
		if suite.Name == name {
			return suite
		}
	}
	return nil
}

// tlsVersion returns 0 for an unknown name.
func tlsVersion(name string) uint16 {
	if i := slices.Index(TLSVersions(), name); i >= 0 {
		return tls.VersionTLS10 + uint16(i)
	}
	return 0
}

// clusterTLS returns the cluster's TLS settings for components without their own settings, or zero if there are none. Without tlsAdherence,
// the profile applies only to the components that have always followed it. As the API requires, an unknown value counts as strict.
func clusterTLS(server *configv1.APIServer, parse ParseProfile) TLS {
	if server == nil {
		return TLS{}
	}
	switch server.Spec.TLSAdherence {
	case configv1.TLSAdherencePolicyNoOpinion, configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly:
		return TLS{}
	case configv1.TLSAdherencePolicyStrictAllComponents:
	}
	minVersion, suites := parse(server.Spec.TLSSecurityProfile)
	t := TLS{MinVersion: tlsVersion(minVersion)}
	if t.MinVersion == tls.VersionTLS13 {
		return t // its cipher suites are not for TLS 1.2
	}
	for _, name := range suites {
		if suite := cipherSuite(name); suite != nil {
			t.add(suite)
		}
	}
	return t
}

// or returns t with its zero fields set from other.
func (t TLS) or(other TLS) TLS {
	if t.MinVersion == 0 {
		t.MinVersion = other.MinVersion
	}
	if t.CipherSuites == nil {
		t.CipherSuites = other.CipherSuites
	}
	return t
}

// String describes the settings for the log.
func (t TLS) String() string {
	suites := "Go's choice"
	if t.CipherSuites != nil {
		var names []string
		for _, id := range t.CipherSuites {
			names = append(names, tls.CipherSuiteName(id))
		}
		suites = strings.Join(names, ",")
	}
	return fmt.Sprintf("%s and above; cipher suites below TLS 1.3: %s", tls.VersionName(t.MinVersion), suites)
}

// ParseProfile returns the minimum version and the IANA names of the cipher suites in a TLS profile. A nil profile has the default
// settings.
type ParseProfile func(*configv1.TLSSecurityProfile) (minVersion string, suites []string)

// handshakes applies the current settings to the endpoint's handshakes. An open connection keeps its settings until it is closed as idle.
type handshakes struct {
	// given contains the settings from flags, which override the cluster's.
	given TLS
	parse ParseProfile
	log   logr.Logger
	// base contains all settings except the version and the cipher suites.
	base    *tls.Config
	current atomic.Pointer[tls.Config]
}

func newHandshakes(log logr.Logger, base *tls.Config, given TLS, parse ParseProfile) *handshakes {
	h := &handshakes{given: given, parse: parse, log: log, base: base}
	h.use(nil)
	return h
}

// config returns the TLS configuration for a listener.
func (h *handshakes) config() *tls.Config {
	config := h.base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return h.current.Load(), nil }
	return config
}

// use applies the cluster's APIServer, or nil if there is none.
func (h *handshakes) use(server *configv1.APIServer) {
	t := h.given.or(clusterTLS(server, h.parse)).or(TLS{MinVersion: tls.VersionTLS12})
	config := h.base.Clone()
	config.MinVersion, config.CipherSuites = t.MinVersion, t.CipherSuites
	before := h.current.Swap(config)
	if before == nil {
		return
	}
	if was := (TLS{before.MinVersion, before.CipherSuites}).String(); was != t.String() {
		h.log.Info("the endpoint's TLS settings have changed", "accepted", t.String(), "before", was)
	}
}

// seen calls use for an object from a watch. It ignores an object that cannot be parsed. Because the API server has validated the object,
// it must have an unknown schema.
func (h *handshakes) seen(u *unstructured.Unstructured) {
	if u == nil {
		h.use(nil)
		return
	}
	server := &configv1.APIServer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, server); err != nil {
		h.log.Error(err, "cannot parse APIServer cluster")
		return
	}
	h.use(server)
}

// apiServerDefinition is the name of the APIServer CRD, which many clusters do not have.
const apiServerDefinition = "apiservers.config.openshift.io"

// tlsProfile watches the cluster's TLS profile.
type tlsProfile struct {
	client     dynamic.Interface
	handshakes *handshakes
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every replica serves.
func (*tlsProfile) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *tlsProfile) Start(ctx context.Context) error {
	server := watch.NewServed(p.client, configv1.GroupVersion.WithResource("apiservers"), "cluster", p.handshakes.seen)
	definition := watch.NewDefinition(p.client, apiServerDefinition, func(crd *unstructured.Unstructured) {
		server.SetServed(ctx, watch.Established(crd))
	})
	definition.RunWithContext(ctx)
	return nil
}
