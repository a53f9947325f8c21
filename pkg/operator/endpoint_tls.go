package operator

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
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/apply"
)

// TLS says which handshakes the endpoint accepts. What is zero is left to the cluster's TLS profile and else is TLS 1.2
// with the cipher suites that Go holds to be safe.
type TLS struct {
	// MinVersion is the least version, such as tls.VersionTLS12.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2 and below; nil for Go's choice, empty for none. Those of TLS 1.3 are always Go's.
	CipherSuites []uint16
}

// TLSVersions returns the names of the versions that ParseTLS knows, lowest first.
func TLSVersions() []string {
	return []string{
		string(configv1.VersionTLS10), string(configv1.VersionTLS11), string(configv1.VersionTLS12), string(configv1.VersionTLS13),
	}
}

// TLSCipherSuites returns the IANA names of the cipher suites that ParseTLS knows.
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

// ParseTLS reads a version such as VersionTLS12, and IANA names of cipher suites. Nothing given stays zero.
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

// add accepts a cipher suite. One of TLS 1.3 changes nothing, but says that those that are not named are unwanted.
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

// tlsVersion is 0 for a name that is unknown.
func tlsVersion(name string) uint16 {
	if i := slices.Index(TLSVersions(), name); i >= 0 {
		return tls.VersionTLS10 + uint16(i) //nolint:gosec // one of four
	}
	return 0
}

// profileTLS is what the cluster wants of every component that has no wish of its own, zero if it wants nothing: without
// tlsAdherence the profile is for the components that have always followed it. A value that a later API brings counts as
// the strict one, as the API has it.
func profileTLS(server *configv1.APIServer) TLS {
	if server == nil {
		return TLS{}
	}
	switch server.Spec.TLSAdherence {
	case configv1.TLSAdherencePolicyNoOpinion, configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly:
		return TLS{}
	case configv1.TLSAdherencePolicyStrictAllComponents:
	}
	profile := apply.NewTLS(server.Spec.TLSSecurityProfile)
	t := TLS{MinVersion: tlsVersion(profile.MinVersion)}
	if t.MinVersion == tls.VersionTLS13 {
		return t // its cipher suites say nothing of TLS 1.2
	}
	for _, name := range profile.CipherSuites {
		if suite := cipherSuite(name); suite != nil {
			t.add(suite)
		}
	}
	return t
}

// or takes from another what is zero.
func (t TLS) or(other TLS) TLS {
	if t.MinVersion == 0 {
		t.MinVersion = other.MinVersion
	}
	if t.CipherSuites == nil {
		t.CipherSuites = other.CipherSuites
	}
	return t
}

// String is for the log.
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

// handshakes decides which handshakes the endpoint accepts, each by what is known when it begins. A connection that
// stands goes on as it began, until it has been idle for a while.
type handshakes struct {
	// given is what the operator was started with; it comes before what the cluster wants.
	given TLS
	log   logr.Logger
	// base has everything but the version and the cipher suites.
	base    *tls.Config
	current atomic.Pointer[tls.Config]
}

func newHandshakes(log logr.Logger, base *tls.Config, given TLS) *handshakes {
	h := &handshakes{given: given, log: log, base: base}
	h.use(nil)
	return h
}

// config is what a listener is set up with.
func (h *handshakes) config() *tls.Config {
	config := h.base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return h.current.Load(), nil }
	return config
}

// use takes over the cluster's APIServer, nil if there is none.
func (h *handshakes) use(server *configv1.APIServer) {
	t := h.given.or(profileTLS(server)).or(TLS{MinVersion: tls.VersionTLS12})
	config := h.base.Clone()
	config.MinVersion, config.CipherSuites = t.MinVersion, t.CipherSuites
	before := h.current.Swap(config)
	if before == nil {
		return
	}
	if was := (TLS{before.MinVersion, before.CipherSuites}).String(); was != t.String() {
		h.log.Info("endpoint accepts other handshakes", "accepted", t.String(), "before", was)
	}
}

// seen is use for what a watch tells. An object that cannot be read is left aside: the API server has checked it, so its
// schema is not one that we know.
func (h *handshakes) seen(u *unstructured.Unstructured) {
	if u == nil {
		h.use(nil)
		return
	}
	server := &configv1.APIServer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, server); err != nil {
		h.log.Error(err, "APIServer cluster not understood")
		return
	}
	h.use(server)
}

// apiServerDefinition is the name of the definition of APIServer, which many clusters do not have.
const apiServerDefinition = "apiservers.config.openshift.io"

// follow has handshakes follow the cluster's TLS profile, on every replica.
func (h *handshakes) follow(mgr manager.Manager) error {
	client, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating dynamic client: %w", err)
	}
	return mgr.Add(&tlsProfile{client, h})
}

// tlsProfile watches the cluster's TLS profile.
type tlsProfile struct {
	client     dynamic.Interface
	handshakes *handshakes
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*tlsProfile) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *tlsProfile) Start(ctx context.Context) error {
	server := &whileServed{client: p.client, resource: configv1.GroupVersion.WithResource("apiservers"), name: "cluster", seen: p.handshakes.seen}
	definition := newDefinition(p.client, apiServerDefinition, func(crd *unstructured.Unstructured) {
		server.serve(ctx, established(crd))
	})
	definition.RunWithContext(ctx)
	return nil
}
