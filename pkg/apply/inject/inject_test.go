package inject

import (
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

func TestTLSSettingsAreWrittenIntoFiles(t *testing.T) {
	settings := TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"A", "B"}}
	const both = "  cipherSuites:\n  - A\n  - B\n  minTLSVersion: VersionTLS12\n"
	for _, tt := range []struct {
		name, file string
		settings   TLS
		want       string
	}{
		{"adds a section", head, settings, head + "servingInfo:\n" + both},
		{"adds a section to the other kind", head2, settings, head2 + "servingInfo:\n" + both},
		{"adds a section after a last line without a line break", head2[:len(head2)-1], settings, head2 + "servingInfo:\n" + both},
		{
			"keeps comments, blank lines, quotes and order",
			"# first\n\n" + head + "servingInfo:   # here\n    bindNetwork: \"tcp\"\n\n    # about names\n    namedCertificates: []\n\n# next\nleaderElection:\n    name: 'x'\n",
			settings,
			"# first\n\n" + head + "servingInfo:   # here\n    bindNetwork: \"tcp\"\n\n    # about names\n    namedCertificates: []\n" +
				"    cipherSuites:\n    - A\n    - B\n    minTLSVersion: VersionTLS12\n\n# next\nleaderElection:\n    name: 'x'\n",
		},
		{
			"replaces other settings in place",
			head + "servingInfo:\n  minTLSVersion: VersionTLS10\n  cipherSuites:\n    - C\n    # why\n    - D\n  bindNetwork: tcp\n",
			settings,
			head + "servingInfo:\n  minTLSVersion: VersionTLS12\n  cipherSuites:\n  - A\n  - B\n  bindNetwork: tcp\n",
		},
		{"keeps equal settings as written", head + "servingInfo: {cipherSuites: ['A', B], minTLSVersion: VersionTLS12}", settings, head + "servingInfo: {cipherSuites: ['A', B], minTLSVersion: VersionTLS12}"},
		{"removes settings", head + "servingInfo:\n" + both + "  bindNetwork: tcp\n", TLS{}, head + "servingInfo:\n  bindNetwork: tcp\n"},
		{"keeps a section that becomes empty", head + "servingInfo:\n" + both + "# end\n", TLS{}, head + "servingInfo: {}\n# end\n"},
		{"removes one setting and adds the other", head + "servingInfo:\n" + both, TLS{MinVersion: "X"}, head + "servingInfo:\n  minTLSVersion: X\n"},
		{"adds no empty section", head, TLS{}, head},
		{"accepts JSON", `{"kind": "GenericOperatorConfig", "apiVersion": "operator.openshift.io/v1alpha1"}`, TLS{MinVersion: "X"}, `{"kind": "GenericOperatorConfig", "apiVersion": "operator.openshift.io/v1alpha1", servingInfo: {minTLSVersion: X}}` + "\n"},
		{"fills a section that is null", head + "servingInfo:\nother: 1 # one\n", TLS{MinVersion: "X"}, head + "servingInfo:\n  minTLSVersion: X\nother: 1 # one\n"},
		{"fills a section in braces", head + "# a\nservingInfo: {bindNetwork: tcp} # b\n", TLS{MinVersion: "X"}, head + "# a\nservingInfo: {bindNetwork: tcp, minTLSVersion: X} # b\n"},
		{"expands a section that is an alias", head + "a: &x\n  b: 1\nservingInfo: *x\n", TLS{MinVersion: "X"}, "a:\n  b: 1\napiVersion: operator.openshift.io/v1alpha1\nkind: GenericOperatorConfig\nservingInfo:\n  b: 1\n  minTLSVersion: X\n"},
		{"keeps files of another kind", "apiVersion: v1\nkind: GenericOperatorConfig\n", settings, "apiVersion: v1\nkind: GenericOperatorConfig\n"},
		{"keeps files with several documents", head + "---\n" + head, settings, head + "---\n" + head},
		{"keeps text", "GenericOperatorConfig", settings, "GenericOperatorConfig"},
		{"keeps files that are not YAML", head + "\t: [", settings, head + "\t: ["},
		{"keeps a list", "- " + `{kind: GenericOperatorConfig}`, settings, "- " + `{kind: GenericOperatorConfig}`},
		{"keeps an empty file", "", settings, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got := tt.settings.intoFile(tt.file)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, got, tt.settings.intoFile(got), "a second call must not change anything")
		})
	}
}

// FuzzTLSIntoFile checks only the resulting values, whatever the format of the file.
//
//threat:configuration-tls-settings
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

func TestInjectedValuesAreReadFromTheCluster(t *testing.T) {
	proxy := &configv1.Proxy{Spec: configv1.ProxySpec{HTTPProxy: "not this"}, Status: configv1.ProxyStatus{HTTPProxy: "a", HTTPSProxy: "b", NoProxy: "c"}}
	server := func(url string) *configv1.Infrastructure {
		return &configv1.Infrastructure{Status: configv1.InfrastructureStatus{APIServerInternalURL: url}}
	}
	i, err := FromCluster(nil, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, Values{}, i)
	i, err = FromCluster(proxy, &configv1.APIServer{}, server("https://api-int.example.com:6443"))
	require.NoError(t, err)
	assert.Equal(t, Values{Proxy: Proxy{"a", "b", "c"}, TLS: TLSOf(nil), APIServer: APIServer{"api-int.example.com", "6443"}}, i)
	i, err = FromCluster(nil, nil, server("https://[fd00::1]"))
	require.NoError(t, err)
	assert.Equal(t, APIServer{Host: "fd00::1"}, i.APIServer)
	_, err = FromCluster(nil, nil, server("https://a b:x"))
	require.ErrorContains(t, err, "status.apiServerInternalURI")
}

func TestInjectedCABundlesAreOmitted(t *testing.T) {
	serviceCA := map[string]string{"service.beta.openshift.io/inject-cabundle": "true"}
	trusted := map[string]string{"config.openshift.io/inject-trusted-cabundle": "true"}
	certManager := map[string]string{"cert-manager.io/inject-ca-from": "ns/cert"}
	const webhooks = "webhooks: [{name: a, clientConfig: {caBundle: x, url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"
	for _, tt := range []struct {
		name                string
		annotations, labels map[string]string
		object, want        string
	}{
		{"keeps bundles that no component injects", nil, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {caBundle: x}"},
		{"keeps bundles if injection is off", map[string]string{"service.beta.openshift.io/inject-cabundle": "false"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {caBundle: x}"},
		{"omits the bundle of an APIService", serviceCA, nil, "kind: APIService\nspec: {caBundle: x, version: v1}", "kind: APIService\nspec: {version: v1}"},
		{"omits a blank bundle", nil, nil, "kind: APIService\nspec: {caBundle: Cg==}", "kind: APIService\nspec: {}"},
		{"omits an empty bundle", nil, nil, "kind: APIService\nspec: {caBundle: \"\"}", "kind: APIService\nspec: {}"},
		{"omits a bundle of cert-manager", certManager, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{"omits a bundle from a Secret", map[string]string{"cert-manager.io/inject-ca-from-secret": "ns/s"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{"omits the bundle of the API server", map[string]string{"cert-manager.io/inject-apiserver-ca": "true"}, nil, "kind: APIService\nspec: {caBundle: x}", "kind: APIService\nspec: {}"},
		{
			"omits the bundle of a CRD", serviceCA, nil,
			"kind: CustomResourceDefinition\nspec: {conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: x, url: u}}}}",
			"kind: CustomResourceDefinition\nspec: {conversion: {strategy: Webhook, webhook: {clientConfig: {url: u}}}}",
		},
		{"accepts a CRD without conversion", serviceCA, nil, "kind: CustomResourceDefinition\nspec: {}", "kind: CustomResourceDefinition\nspec: {}"},
		{"omits the bundle of each webhook", serviceCA, nil, "kind: ValidatingWebhookConfiguration\n" + webhooks, "kind: ValidatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"},
		{"omits the bundle of each mutating webhook", certManager, nil, "kind: MutatingWebhookConfiguration\n" + webhooks, "kind: MutatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {url: u}}, {name: b, clientConfig: {url: v}}, {name: c}]"},
		{"omits the service CA of a ConfigMap", serviceCA, nil, "kind: ConfigMap\ndata: {service-ca.crt: x, other: y}", "kind: ConfigMap\ndata: {other: y}"},
		{"omits the trusted CAs of a ConfigMap", nil, trusted, "kind: ConfigMap\ndata: {ca-bundle.crt: \"\", service-ca.crt: x}", "kind: ConfigMap\ndata: {service-ca.crt: x}"},
		{"keeps a ConfigMap of cert-manager", certManager, nil, "kind: ConfigMap\ndata: {service-ca.crt: x}", "kind: ConfigMap\ndata: {service-ca.crt: x}"},
		{"keeps other kinds", serviceCA, nil, "kind: Service\nspec: {caBundle: x}", "kind: Service\nspec: {caBundle: x}"},
		{"accepts malformed objects", serviceCA, nil, "kind: ValidatingWebhookConfiguration\nwebhooks: {a: b}", "kind: ValidatingWebhookConfiguration\nwebhooks: {a: b}"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object, want, before := decodeText(t, tt.object), decodeText(t, tt.want), decodeText(t, tt.object)
			assert.Equal(t, want, WithoutCA(object, tt.annotations, tt.labels))
			assert.Equal(t, before, object, "the manifest must not change")
		})
	}
}

func decodeText(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return object
}
