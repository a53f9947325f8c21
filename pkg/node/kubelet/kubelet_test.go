package kubelet_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newConfig returns a KubeletConfig for pools, with settings as JSON. Its name is its age in seconds: "0" is the oldest.
func newConfig(age int, settings string, pools ...string) mcfgv1.KubeletConfig {
	name := fmt.Sprint(age)
	c := mcfgv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(age) * time.Second)),
	}}
	c.Spec.KubeletConfig = &runtime.RawExtension{Raw: []byte(settings)}
	c.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: pools}},
	}
	return c
}

func newPools(names ...string) []mcfgv1.MachineConfigPool {
	var pools []mcfgv1.MachineConfigPool
	for _, name := range names {
		pools = append(pools, mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name}}})
	}
	return pools
}

var allPools = newPools("worker", "master", "infra")

// remember stores what a plan remembers in its KubeletConfig.
func remember(c *mcfgv1.KubeletConfig, suffix string) {
	c.Annotations = map[string]string{api.SuffixAnnotation: suffix}
}

// files returns the files of a plan's MachineConfigs, by path.
func files(t *testing.T, p kubelet.Plan) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, mc := range p.MachineConfigs {
		require.NoError(t, config.Validate(mc))
		var content struct {
			Storage struct {
				Files []struct {
					Path     string
					Contents struct{ Source string }
				}
			}
		}
		require.NoError(t, json.Unmarshal(mc.Spec.Config.Raw, &content))
		for _, f := range content.Storage.Files {
			text, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f.Contents.Source, "data:;base64,"))
			require.NoError(t, err)
			out[f.Path] = string(text)
		}
	}
	return out
}

func TestKubeletConfigBecomesOneFileForEachPool(t *testing.T) {
	c := newConfig(0, `{"maxPods":500,"evictionHard":{"memory.available":"5%"},"podPidsLimit":9007199254740993}`, "worker", "infra")
	c.Spec.LogLevel = new(int32(4))
	o := kubelet.Options{Version: "v1"}

	plans := kubelet.Plans([]mcfgv1.KubeletConfig{c}, allPools, nil, o)

	require.Len(t, plans, 1)
	p := plans[0]
	require.Nil(t, p.Err)
	assert.True(t, p.HasSuffix)
	assert.Empty(t, p.Suffix)
	assert.Equal(t, []string{"99-infra-generated-kubelet", "99-worker-generated-kubelet"}, p.Names)
	want := `apiVersion: kubelet.config.k8s.io/v1beta1
evictionHard:
  memory.available: 5%
kind: KubeletConfiguration
logging:
  verbosity: 4
maxPods: 500
podPidsLimit: 9007199254740993
`
	assert.Equal(t, map[string]string{
		"/etc/kubernetes/kubelet.conf.d/99-kubeletconfig-0.conf":      want,
		"/etc/kubernetes/kubelet.conf.d/99-kubeletconfig-pool-0.conf": want,
	}, files(t, p), "the file of a custom pool is after that of the workers")
	infra := p.MachineConfigs[0]
	assert.Equal(t, p.Names[0], infra.Name)
	assert.Equal(t, "infra", infra.Labels[api.MachineConfigRoleLabel])
	assert.Equal(t, "v1", infra.Annotations[api.GeneratedByAnnotation])
	assert.True(t, metav1.IsControlledBy(infra, &c))

	o.Folder = "/etc/kubelet"
	assert.Equal(t, map[string]string{"/etc/kubelet/99-kubeletconfig-pool-0.conf": want, "/etc/kubelet/99-kubeletconfig-0.conf": want},
		files(t, kubelet.Plans([]mcfgv1.KubeletConfig{c}, allPools, nil, o)[0]))
}

func TestInvalidKubeletConfigsNameTheFieldAndTheRemedy(t *testing.T) {
	const notAllowed = " is not allowed: the node's own configuration decides about it; remove it"
	for _, tt := range []struct {
		name, settings string
		change         func(*mcfgv1.KubeletConfig)
		want           string // empty if it is valid
	}{
		{name: "no settings", settings: ""},
		{name: "null", settings: "null"},
		{name: "an unknown setting", settings: `{"future":true}`},
		{name: "its own kind", settings: `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"}`},
		{name: "another version", settings: `{"apiVersion":"v1"}`, want: "spec.kubeletConfig.apiVersion must be kubelet.config.k8s.io/v1beta1; remove it"},
		{name: "another kind", settings: `{"kind":1}`, want: "spec.kubeletConfig.kind must be KubeletConfiguration; remove it"},
		{name: "a list", settings: `[]`, want: "spec.kubeletConfig does not parse: "},
		{name: "cgroupDriver", settings: `{"cgroupDriver":"systemd"}`, want: "spec.kubeletConfig.cgroupDriver" + notAllowed},
		{name: "clusterDNS", settings: `{"clusterDNS":[]}`, want: "spec.kubeletConfig.clusterDNS" + notAllowed},
		{name: "clusterDomain", settings: `{"clusterDomain":null}`, want: "spec.kubeletConfig.clusterDomain" + notAllowed},
		{name: "featureGates", settings: `{"featureGates":{"A":true}}`, want: "spec.kubeletConfig.featureGates" + notAllowed},
		{name: "failSwapOn", settings: `{"failSwapOn":false}`, want: "spec.kubeletConfig.failSwapOn" + notAllowed},
		{name: "swapBehavior", settings: `{"memorySwap":{"swapBehavior":"LimitedSwap"}}`, want: "spec.kubeletConfig.memorySwap.swapBehavior" + notAllowed},
		{name: "static pods of workers", settings: `{"staticPodPath":"/etc/pods"}`},
		{
			name: "static pods of the control plane", settings: `{"staticPodPath":"/etc/pods"}`,
			change: func(c *mcfgv1.KubeletConfig) {
				c.Spec.MachineConfigPoolSelector.MatchExpressions[0].Values[0] = "master"
			},
			want: "spec.kubeletConfig.staticPodPath is not allowed on control-plane nodes, which run static pods; remove it, or select only pools of workers",
		},
		{name: "its own reservation", change: func(c *mcfgv1.KubeletConfig) { c.Spec.AutoSizingReserved = new(false) }},
		{
			name: "a computed reservation", change: func(c *mcfgv1.KubeletConfig) { c.Spec.AutoSizingReserved = new(true) },
			want: "spec.autoSizingReserved is not supported; set spec.kubeletConfig.systemReserved instead",
		},
		{
			name: "two TLS settings", settings: `{"tlsMinVersion":"VersionTLS13"}`, change: withTLS(configv1.TLSSecurityProfile{}),
			want: "spec.kubeletConfig.tlsMinVersion is the same setting as spec.tlsSecurityProfile; remove one of the two",
		},
		{
			name: "a custom TLS profile without content", change: withTLS(configv1.TLSSecurityProfile{Type: "Custom"}),
			want: "spec.tlsSecurityProfile.custom is missing; add it, or choose another type",
		},
		{
			name: "an unknown TLS profile", change: withTLS(configv1.TLSSecurityProfile{Type: "Future"}),
			want: `spec.tlsSecurityProfile.type is "Future", an unknown profile; use Old, Intermediate, Modern or Custom`,
		},
		{
			name: "a cipher that the kubelet does not support", change: withTLS(custom("DHE-RSA-AES128-GCM-SHA256")),
			want: `spec.tlsSecurityProfile.custom.ciphers contains "DHE-RSA-AES128-GCM-SHA256", which the kubelet does not support; remove it`,
		},
		{
			name: "two log levels", settings: `{"logging":{"verbosity":1}}`, change: func(c *mcfgv1.KubeletConfig) { c.Spec.LogLevel = new(int32(1)) },
			want: "spec.kubeletConfig.logging.verbosity is the same setting as spec.logLevel; remove one of the two",
		},
		{
			name: "logging of another type", settings: `{"logging":"text"}`, change: func(c *mcfgv1.KubeletConfig) { c.Spec.LogLevel = new(int32(1)) },
			want: "spec.kubeletConfig.logging is not an object; correct or remove it",
		},
		{name: "a log level and a format", settings: `{"logging":{"format":"json"}}`, change: func(c *mcfgv1.KubeletConfig) { c.Spec.LogLevel = new(int32(1)) }},
		{
			name: "no selector", change: func(c *mcfgv1.KubeletConfig) { c.Spec.MachineConfigPoolSelector = nil },
			want: "spec.machineConfigPoolSelector selects no MachineConfigPool; select a label of a pool, such as pools.operator.machineconfiguration.openshift.io/worker",
		},
		{
			name: "an empty selector", change: func(c *mcfgv1.KubeletConfig) { c.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{} },
			want: "spec.machineConfigPoolSelector selects no MachineConfigPool; ",
		},
		{
			name: "an invalid selector", change: func(c *mcfgv1.KubeletConfig) { c.Spec.MachineConfigPoolSelector.MatchExpressions[0].Operator = "Near" },
			want: `spec.machineConfigPoolSelector is no selector: "Near" is not a valid label selector operator; correct it`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConfig(0, tt.settings, "worker")
			if tt.change != nil {
				tt.change(&c)
			}

			p := kubelet.Plans([]mcfgv1.KubeletConfig{c}, allPools, nil, kubelet.Options{})[0]

			if tt.want == "" {
				require.Nil(t, p.Err)
				assert.Len(t, files(t, p), 1)
				return
			}
			require.NotNil(t, p.Err)
			assert.Contains(t, p.Err.Error(), "KubeletConfig 0 is invalid: "+tt.want)
			assert.Empty(t, p.MachineConfigs)
		})
	}
}

// withTLS returns a change that sets a TLS profile.
func withTLS(profile configv1.TLSSecurityProfile) func(*mcfgv1.KubeletConfig) {
	return func(c *mcfgv1.KubeletConfig) { c.Spec.TLSSecurityProfile = &profile }
}

func custom(ciphers ...string) configv1.TLSSecurityProfile {
	return configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
		TLSProfileSpec: configv1.TLSProfileSpec{Ciphers: ciphers},
	}}
}

func TestTLSProfilesBecomeSettings(t *testing.T) {
	const modern = "tlsCipherSuites:\n- TLS_AES_128_GCM_SHA256\n- TLS_AES_256_GCM_SHA384\n- TLS_CHACHA20_POLY1305_SHA256\n"
	const intermediate = modern + `- TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
- TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
- TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
- TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
- TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
- TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
`
	const old = intermediate + `- TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256
- TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256
- TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
- TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA
- TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
- TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
- TLS_RSA_WITH_AES_128_GCM_SHA256
- TLS_RSA_WITH_AES_256_GCM_SHA384
- TLS_RSA_WITH_AES_128_CBC_SHA256
- TLS_RSA_WITH_AES_128_CBC_SHA
- TLS_RSA_WITH_AES_256_CBC_SHA
- TLS_RSA_WITH_3DES_EDE_CBC_SHA
`
	for _, tt := range []struct {
		profile configv1.TLSSecurityProfile
		want    string
	}{
		{configv1.TLSSecurityProfile{Type: "Old"}, old + "tlsMinVersion: VersionTLS10\n"},
		{configv1.TLSSecurityProfile{}, intermediate + "tlsMinVersion: VersionTLS12\n"},
		{configv1.TLSSecurityProfile{Type: "Intermediate"}, intermediate + "tlsMinVersion: VersionTLS12\n"},
		{configv1.TLSSecurityProfile{Type: "Modern"}, modern + "tlsMinVersion: VersionTLS13\n"},
		{custom("AES128-SHA"), "tlsCipherSuites:\n- TLS_RSA_WITH_AES_128_CBC_SHA\n"},
		{custom(), ""},
	} {
		t.Run(string(tt.profile.Type), func(t *testing.T) {
			c := newConfig(0, "", "worker")
			withTLS(tt.profile)(&c)
			p := kubelet.Plans([]mcfgv1.KubeletConfig{c}, allPools, nil, kubelet.Options{})[0]
			require.Nil(t, p.Err)
			assert.Equal(t, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+tt.want,
				files(t, p)["/etc/kubernetes/kubelet.conf.d/99-kubeletconfig-0.conf"])
		})
	}
}

func TestNumbersStayAndNewOnesAreHigher(t *testing.T) {
	const none = "none"
	for _, tt := range []struct {
		name string
		// remembered are the suffixes that KubeletConfigs remember, from the oldest to the newest.
		remembered, want []string
	}{
		{"the first has no suffix", []string{none}, []string{""}},
		{"the age decides", []string{none, none, none}, []string{"", "1", "2"}},
		{"numbers stay", []string{"2", "", "1"}, []string{"2", "", "1"}},
		{"a new one is higher than all", []string{none, "4"}, []string{"5", "4"}},
		{"after the highest come the free ones", []string{"9", "8", none, none}, []string{"9", "8", "7", "6"}},
		{"invalid suffixes are replaced", []string{"10", "-1", "01", "x"}, []string{"", "1", "2", "3"}},
		{"the older one keeps a number", []string{"1", "1"}, []string{"1", "2"}},
		{"at most ten", strings.Fields("9 8 7 6 5 4 3 2 1 none none"), []string{"9", "8", "7", "6", "5", "4", "3", "2", "1", "", none}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var configs []mcfgv1.KubeletConfig
			for age, suffix := range tt.remembered {
				c := newConfig(age, "", "worker")
				if suffix != none {
					remember(&c, suffix)
				}
				configs = append([]mcfgv1.KubeletConfig{c}, configs...)
			}
			var got []string
			for _, p := range kubelet.Plans(configs, allPools, nil, kubelet.Options{}) {
				if p.HasSuffix {
					got = append(got, p.Suffix)
					continue
				}
				got = append(got, none)
				assert.Contains(t, p.Err.Error(), "has 10 KubeletConfigs already; combine some of them into one")
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestNumbersDependOnSharedPoolsOnly(t *testing.T) {
	configs := []mcfgv1.KubeletConfig{newConfig(0, "", "worker"), newConfig(1, "", "infra"), newConfig(2, "", "worker", "infra")}
	plans := kubelet.Plans(configs, allPools, nil, kubelet.Options{})
	assert.Equal(t, []string{"99-worker-generated-kubelet"}, plans[0].Names)
	assert.Equal(t, []string{"99-infra-generated-kubelet"}, plans[1].Names)
	assert.Equal(t, []string{"99-infra-generated-kubelet-1", "99-worker-generated-kubelet-1"}, plans[2].Names)
}

func TestMachineConfigsWithoutKubeletConfigAreUnused(t *testing.T) {
	configs := []mcfgv1.KubeletConfig{newConfig(0, "", "worker"), newConfig(1, "", "worker", "infra")}
	var existing []mcfgv1.MachineConfig
	for _, p := range kubelet.Plans(configs, allPools, nil, kubelet.Options{}) {
		remember(p.Config, p.Suffix)
		for _, mc := range p.MachineConfigs {
			existing = append(existing, *mc)
		}
	}
	existing = append(existing, mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-worker-ssh"}})
	unused := func() []string {
		var names []string
		for _, mc := range kubelet.Unused(existing, kubelet.Plans(configs, allPools, existing, kubelet.Options{})) {
			names = append(names, mc.Name)
		}
		return names
	}
	assert.Empty(t, unused())

	configs[1].Spec.KubeletConfig.Raw = []byte(`{"clusterDomain":"x"}`)
	assert.Empty(t, unused(), "an invalid KubeletConfig keeps its last valid content")

	configs[1].Spec.MachineConfigPoolSelector.MatchExpressions[0].Operator = "Near"
	assert.Empty(t, unused(), "also one whose selector is invalid")
	configs[1].Spec.MachineConfigPoolSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpIn

	configs[1].Spec.MachineConfigPoolSelector.MatchExpressions[0].Values = []string{"typo"}
	assert.Empty(t, unused(), "also one that selects no pool")
	added := newConfig(2, "", "worker")
	assert.Equal(t, []string{"99-worker-generated-kubelet-2"}, kubelet.Plans(append(configs, added), allPools, existing, kubelet.Options{})[2].Names,
		"a new one does not replace what it keeps")

	configs[1].Spec.MachineConfigPoolSelector.MatchExpressions[0].Values = []string{"worker"}
	assert.Equal(t, []string{"99-infra-generated-kubelet-1"}, unused())

	configs[1].DeletionTimestamp = new(metav1.NewTime(epoch))
	assert.Equal(t, []string{"99-infra-generated-kubelet-1", "99-worker-generated-kubelet-1"}, unused())

	configs = nil
	assert.Len(t, unused(), 3)
}

func TestMachineConfigsOfOthersAreKept(t *testing.T) {
	existing := []mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "99-worker-generated-kubelet"}}}
	p := kubelet.Plans([]mcfgv1.KubeletConfig{newConfig(0, "", "worker")}, allPools, existing, kubelet.Options{})[0]
	require.NotNil(t, p.Err)
	assert.Contains(t, p.Err.Error(), "MachineConfig 99-worker-generated-kubelet exists and belongs to no KubeletConfig; rename that MachineConfig")
}

func TestStatusHasTheConditionsThatClientsRead(t *testing.T) {
	c := newConfig(0, `{"failSwapOn":true}`, "worker")
	c.Generation = 3
	status := func(now time.Time) mcfgv1.KubeletConfigStatus {
		return kubelet.Plans([]mcfgv1.KubeletConfig{c}, allPools, nil, kubelet.Options{})[0].Status(now)
	}
	message := "KubeletConfig 0 is invalid: spec.kubeletConfig.failSwapOn is not allowed: the node's own configuration decides about it; remove it"
	at := metav1.NewTime(epoch)
	c.Status = status(epoch)
	assert.Equal(t, mcfgv1.KubeletConfigStatus{ObservedGeneration: 3, Conditions: []mcfgv1.KubeletConfigCondition{
		{Type: kubelet.Accepted, Status: corev1.ConditionFalse, Reason: "Invalid", Message: message, LastTransitionTime: at},
		{Type: mcfgv1.KubeletConfigFailure, Status: corev1.ConditionFalse, Message: "Error: " + message, LastTransitionTime: at},
	}}, c.Status)
	assert.Equal(t, c.Status, status(epoch.Add(time.Hour)), "nothing changed")

	c.Spec.KubeletConfig, c.Generation = nil, 4
	later := metav1.NewTime(epoch.Add(time.Hour))
	assert.Equal(t, mcfgv1.KubeletConfigStatus{ObservedGeneration: 4, Conditions: []mcfgv1.KubeletConfigCondition{
		{Type: kubelet.Accepted, Status: corev1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: later},
		{Type: mcfgv1.KubeletConfigSuccess, Status: corev1.ConditionTrue, Message: "Success", LastTransitionTime: later},
	}}, status(later.Time))
}

func TestPoolsAwaitTheirKubeletConfigs(t *testing.T) {
	configs := []mcfgv1.KubeletConfig{newConfig(0, "", "worker")}
	c := &configs[0]
	var existing []mcfgv1.MachineConfig
	awaited := func(pool int) string { return kubelet.NewPending(configs, existing, "v2").Of(&allPools[pool]) }
	assert.Equal(t, "0", awaited(0), "no status")
	assert.Empty(t, awaited(1), "another pool")

	plan := kubelet.Plans(configs, allPools, nil, kubelet.Options{Version: "v2"})[0]
	c.Status = plan.Status(epoch)
	assert.Equal(t, "0", awaited(0), "the cache does not show the MachineConfig yet")
	existing = []mcfgv1.MachineConfig{*plan.MachineConfigs[0]}
	assert.Empty(t, awaited(0))
	existing[0].Annotations[api.GeneratedByAnnotation] = "v1"
	assert.Equal(t, "0", awaited(0), "the earlier controller generated the MachineConfig")
	existing[0].Annotations[api.GeneratedByAnnotation] = "v2"

	c.Generation++
	assert.Equal(t, "0", awaited(0), "an old status")
	c.Spec.AutoSizingReserved = new(true)
	existing = nil
	c.Status = kubelet.Plans(configs, allPools, nil, kubelet.Options{})[0].Status(epoch)
	assert.Empty(t, awaited(0), "an invalid KubeletConfig has no MachineConfig")

	c.Generation++
	c.DeletionTimestamp = new(metav1.NewTime(epoch))
	assert.Empty(t, awaited(0))
}
