package apply

import (
	"crypto/tls"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	head  = "apiVersion: operator.openshift.io/v1alpha1\nkind: GenericOperatorConfig\n"
	head2 = "kind: GenericControllerConfig\napiVersion: config.openshift.io/v1\n"
)

func TestTLSIntoFile(t *testing.T) {
	settings := TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"A", "B"}}
	const both = "  cipherSuites:\n  - A\n  - B\n  minTLSVersion: VersionTLS12\n"
	for _, tt := range []struct {
		name, file string
		settings   TLS
		want       string
	}{
		{"adds a section", head, settings, head + "servingInfo:\n" + both},
		{"adds a section to the other kind", head2, settings, head2 + "servingInfo:\n" + both},
		{"adds a section after the last line break that is missing", head2[:len(head2)-1], settings, head2 + "servingInfo:\n" + both},
		{
			"keeps comments, blank lines, quotes and order",
			"# first\n\n" + head + "servingInfo:   # here\n    bindNetwork: \"tcp\"\n\n    # about names\n    namedCertificates: []\n\n# next\nleaderElection:\n    name: 'x'\n",
			settings,
			"# first\n\n" + head + "servingInfo:   # here\n    bindNetwork: \"tcp\"\n\n    # about names\n    namedCertificates: []\n" +
				"    cipherSuites:\n    - A\n    - B\n    minTLSVersion: VersionTLS12\n\n# next\nleaderElection:\n    name: 'x'\n",
		},
		{
			"replaces other settings where they stand",
			head + "servingInfo:\n  minTLSVersion: VersionTLS10\n  cipherSuites:\n    - C\n    # why\n    - D\n  bindNetwork: tcp\n",
			settings,
			head + "servingInfo:\n  minTLSVersion: VersionTLS12\n  cipherSuites:\n  - A\n  - B\n  bindNetwork: tcp\n",
		},
		{"leaves equal settings in their form", head + "servingInfo: {cipherSuites: ['A', B], minTLSVersion: VersionTLS12}", settings, head + "servingInfo: {cipherSuites: ['A', B], minTLSVersion: VersionTLS12}"},
		{"removes settings", head + "servingInfo:\n" + both + "  bindNetwork: tcp\n", TLS{}, head + "servingInfo:\n  bindNetwork: tcp\n"},
		{"leaves an empty section", head + "servingInfo:\n" + both + "# end\n", TLS{}, head + "servingInfo: {}\n# end\n"},
		{"removes one and sets the other", head + "servingInfo:\n" + both, TLS{MinVersion: "X"}, head + "servingInfo:\n  minTLSVersion: X\n"},
		{"adds no section to be emptied", head, TLS{}, head},
		{"knows JSON", `{"kind": "GenericOperatorConfig", "apiVersion": "operator.openshift.io/v1alpha1"}`, TLS{MinVersion: "X"}, `{"kind": "GenericOperatorConfig", "apiVersion": "operator.openshift.io/v1alpha1", servingInfo: {minTLSVersion: X}}` + "\n"},
		{"fills a section that is null", head + "servingInfo:\nother: 1 # one\n", TLS{MinVersion: "X"}, head + "servingInfo:\n  minTLSVersion: X\nother: 1 # one\n"},
		{"fills a section in braces", head + "# a\nservingInfo: {bindNetwork: tcp} # b\n", TLS{MinVersion: "X"}, head + "# a\nservingInfo: {bindNetwork: tcp, minTLSVersion: X} # b\n"},
		{"copies a section that stands elsewhere", head + "a: &x\n  b: 1\nservingInfo: *x\n", TLS{MinVersion: "X"}, "a:\n  b: 1\napiVersion: operator.openshift.io/v1alpha1\nkind: GenericOperatorConfig\nservingInfo:\n  b: 1\n  minTLSVersion: X\n"},
		{"leaves another kind", "apiVersion: v1\nkind: GenericOperatorConfig\n", settings, "apiVersion: v1\nkind: GenericOperatorConfig\n"},
		{"leaves more than one document", head + "---\n" + head, settings, head + "---\n" + head},
		{"leaves text", "GenericOperatorConfig", settings, "GenericOperatorConfig"},
		{"leaves what is no YAML", head + "\t: [", settings, head + "\t: ["},
		{"leaves a list", "- " + `{kind: GenericOperatorConfig}`, settings, "- " + `{kind: GenericOperatorConfig}`},
		{"leaves nothing", "", settings, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got := tt.settings.intoFile(tt.file)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, got, tt.settings.intoFile(got), "once more changes nothing")
		})
	}
}

// FuzzTLSIntoFile checks against the values alone, however a file is written.
func FuzzTLSIntoFile(f *testing.F) {
	for _, seed := range []string{
		head, head2 + "servingInfo:\n  cipherSuites: [x]\n", head + "servingInfo: *x\n", head + "a: &x {b: |\n  c\n  }\nservingInfo: *x",
		head + "servingInfo:\n  a: |\n    # b\n\n    c\n  # d\n", head + "servingInfo:\n- a\n", head + "? servingInfo\n: a: b\n", head + "\r\nservingInfo:\r\n  a: b\r\n",
		head + "servingInfo:\n  a: 'b\n\n  c'\n  minTLSVersion: &x 5\nb: *x\n", head + "servingInfo:\u2028  a: b\u0085", "{" + head + "}", head + "<<: {servingInfo: {cipherSuites: 3}}\n",
	} {
		f.Add(seed)
	}
	settings := TLS{MinVersion: "VersionTLS13", CipherSuites: []string{"A: b", "- c"}}
	f.Fuzz(func(t *testing.T, text string) {
		_, before, ok := configuration(text)
		for _, s := range []TLS{settings, {}} {
			edited := s.intoFile(text)
			if !ok {
				require.Equal(t, text, edited)
				continue
			}
			_, after, ok := configuration(edited)
			require.True(t, ok, "%q", edited)
			info, _ := after["servingInfo"].(map[string]any)
			if s.MinVersion == "" {
				require.NotContains(t, info, "cipherSuites")
				require.NotContains(t, info, "minTLSVersion")
			} else {
				require.Equal(t, []any{"A: b", "- c"}, info["cipherSuites"])
				require.Equal(t, "VersionTLS13", info["minTLSVersion"])
			}
			for key, value := range before {
				if key != "servingInfo" {
					require.Equal(t, value, after[key])
				}
			}
		}
	})
}

func TestNewTLS(t *testing.T) {
	custom := &configv1.CustomTLSProfile{TLSProfileSpec: configv1.TLSProfileSpec{
		Ciphers: []string{"AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"}, MinTLSVersion: configv1.VersionTLS11,
	}}
	intermediate := TLS{MinVersion: "VersionTLS12", CipherSuites: []string{
		"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}}
	for _, tt := range []struct {
		name    string
		profile *configv1.TLSSecurityProfile
		want    TLS
	}{
		{"takes Intermediate for none", nil, intermediate},
		{"takes Intermediate for no type", &configv1.TLSSecurityProfile{}, intermediate},
		{"takes Intermediate for an unknown type", &configv1.TLSSecurityProfile{Type: "Future"}, intermediate},
		{"takes Intermediate for a custom one without settings", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType}, intermediate},
		{"knows Modern", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, TLS{"VersionTLS13", intermediate.CipherSuites[:3]}},
		{"leaves out of a custom one what Go does not have", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: custom}, TLS{"VersionTLS11", []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, NewTLS(tt.profile)) })
	}
	old := NewTLS(&configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType})
	assert.Len(t, old.CipherSuites, len(configv1.TLSProfiles[configv1.TLSProfileOldType].Ciphers), "each has a name")
}

// Components parse the names that they are told with Go's.
func TestIANANamesAreGos(t *testing.T) {
	known := map[string]bool{}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[suite.Name] = true
	}
	for _, name := range ianaNames() {
		assert.True(t, known[name], name)
	}
}

func TestNewInjection(t *testing.T) {
	proxy := &configv1.Proxy{Spec: configv1.ProxySpec{HTTPProxy: "not this"}, Status: configv1.ProxyStatus{HTTPProxy: "a", HTTPSProxy: "b", NoProxy: "c"}}
	server := func(url string) *configv1.Infrastructure {
		return &configv1.Infrastructure{Status: configv1.InfrastructureStatus{APIServerInternalURL: url}}
	}
	i, err := NewInjection(nil, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, Injection{}, i)
	i, err = NewInjection(proxy, &configv1.APIServer{}, server("https://api-int.example.com:6443"))
	require.NoError(t, err)
	assert.Equal(t, Injection{Proxy: Proxy{"a", "b", "c"}, TLS: NewTLS(nil), APIServer: APIServer{"api-int.example.com", "6443"}}, i)
	i, err = NewInjection(nil, nil, server("https://[fd00::1]"))
	require.NoError(t, err)
	assert.Equal(t, APIServer{Host: "fd00::1"}, i.APIServer)
	_, err = NewInjection(nil, nil, server("https://a b:x"))
	require.ErrorContains(t, err, "status.apiServerInternalURI")
}

func TestWithoutInjectedCA(t *testing.T) {
	serviceCA := map[string]string{"service.beta.openshift.io/inject-cabundle": "true"}
	trusted := map[string]string{"config.openshift.io/inject-trusted-cabundle": "true"}
	certManager := map[string]string{"cert-manager.io/inject-ca-from": "ns/cert"}
	const webhooks = "webhooks: [{name: a, clientConfig: {caBundle: x, url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"
	for _, tt := range []struct {
		name                string
		annotations, labels map[string]string
		object, want        string
	}{
		{"keeps bundles that nobody injects", nil, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {caBundle: x}"},
		{"keeps bundles if injection is off", map[string]string{"service.beta.openshift.io/inject-cabundle": "false"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {caBundle: x}"},
		{"leaves out an APIService's", serviceCA, nil, "kind: APIService\nspec: {caBundle: x, version: v1}", "kind: APIService\nspec: {version: v1}"},
		{"leaves out a blank bundle", nil, nil, "kind: APIService\nspec: {caBundle: Cg==}", "kind: APIService\nspec: {}"},
		{"leaves out an empty bundle", nil, nil, "kind: APIService\nspec: {caBundle: \"\"}", "kind: APIService\nspec: {}"},
		{"leaves out cert-manager's", certManager, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{"leaves out a secret's", map[string]string{"cert-manager.io/inject-ca-from-secret": "ns/s"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{"leaves out the API server's", map[string]string{"cert-manager.io/inject-apiserver-ca": "true"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{
			"leaves out a CRD's", serviceCA, nil,
			"kind: CustomResourceDefinition\nspec: {conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: x, url: u}}}}",
			"kind: CustomResourceDefinition\nspec: {conversion: {strategy: Webhook, webhook: {clientConfig: {url: u}}}}",
		},
		{"takes a CRD without conversion", serviceCA, nil, "kind: CustomResourceDefinition\nspec: {}", "kind: CustomResourceDefinition\nspec: {}"},
		{"leaves out each webhook's", serviceCA, nil, "kind: ValidatingWebhookConfiguration\n" + webhooks, "kind: ValidatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"},
		{"leaves out each mutating webhook's", certManager, nil, "kind: MutatingWebhookConfiguration\n" + webhooks, "kind: MutatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"},
		{"leaves out a ConfigMap's service CA", serviceCA, nil, "kind: ConfigMap\ndata: {service-ca.crt: x, other: y}", "kind: ConfigMap\ndata: {other: y}"},
		{"leaves out a ConfigMap's trusted CAs", nil, trusted, "kind: ConfigMap\ndata: {ca-bundle.crt: \"\", service-ca.crt: x}", "kind: ConfigMap\ndata: {service-ca.crt: x}"},
		{"leaves a ConfigMap to cert-manager as it is", certManager, nil, "kind: ConfigMap\ndata: {service-ca.crt: x}", "kind: ConfigMap\ndata: {service-ca.crt: x}"},
		{"leaves other kinds", serviceCA, nil, "kind: Service\nspec: {caBundle: x}", "kind: Service\nspec: {caBundle: x}"},
		{"takes nonsense", serviceCA, nil, "kind: ValidatingWebhookConfiguration\nwebhooks: {a: b}", "kind: ValidatingWebhookConfiguration\nwebhooks: {a: b}"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object, want, before := decodeText(t, tt.object), decodeText(t, tt.want), decodeText(t, tt.object)
			assert.Equal(t, want, withoutInjectedCA(object, tt.annotations, tt.labels))
			assert.Equal(t, before, object, "manifests are shared")
		})
	}
}

func decodeText(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return object
}
