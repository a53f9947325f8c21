package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

func runTrust(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func imagePolicyOf(t *testing.T, name string) *configv1.ClusterImagePolicy {
	t.Helper()
	key, err := fixture.NewKeySigner()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	return &configv1.ClusterImagePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterImagePolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: configv1.ClusterImagePolicySpec{
			Scopes: []configv1.ImageScope{"registry.example.com/platform"},
			Policy: configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
				PolicyType: configv1.PublicKeyRootOfTrust, PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: public},
			}},
		},
	}
}

func TestTrustFileIsCreatedFromAnImagePolicy(t *testing.T) {
	object := imagePolicyOf(t, "platform")
	file := written(t, "policies.yaml", object)
	stdout, stderr, err := runTrust(t, "trust", "from-image-policy", "platform", "--policy", file)
	require.NoError(t, err)
	assert.Contains(t, stderr, "not only the releases in registry.example.com/platform\n")
	trust, err := policy.Parse("trust.yaml", []byte(stdout))
	require.NoError(t, err, "--trust reads it")
	require.Len(t, trust.SigstoreKeys, 1)
	assert.Equal(t, "platform", trust.SigstoreKeys[0].Name)
	assert.Equal(t, configv1.IdentityMatchPolicyMatchRepoDigestOrExact, trust.SigstoreKeys[0].SignedIdentity.MatchPolicy)

	asJSON, _, err := runTrust(t, "trust", "from-image-policy", "platform", "--policy", file, "-o", "json")
	require.NoError(t, err)
	var cm corev1.ConfigMap
	require.NoError(t, json.Unmarshal([]byte(asJSON), &cm))
	assert.Equal(t, metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, cm.TypeMeta)
	assert.Equal(t, metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, cm.ObjectMeta)
	_, err = policy.ParseData("the cluster", cm.Data, cm.BinaryData)
	require.NoError(t, err, "the operator reads it")

	broken := object.DeepCopy()
	broken.Spec.Policy.RootOfTrust.PublicKey = nil
	for _, test := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"a missing name", []string{"--policy", file}, command.ExitUsage, "accepts 1 arg"},
		{"an unknown output", []string{"platform", "--policy", file, "-o", "text"}, command.ExitUsage, "use yaml, json"},
		{"a policy that is not in the file", []string{"shop", "--policy", file}, command.ExitFailed, "no ClusterImagePolicy \"shop\""},
		{"a file that does not exist", []string{"platform", "--policy", file + ".none"}, command.ExitFailed, "reading --policy"},
		{"a policy that the API server rejects", []string{"platform", "--policy", written(t, "policies.yaml", broken)}, command.ExitFailed, "set the field of that name"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			stdout, _, err := runTrust(t, append([]string{"trust", "from-image-policy"}, test.args...)...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.exit, command.ExitCode(err))
			assert.Empty(t, stdout)
		})
	}
}

func TestTrustFileIsCreatedFromAPolicyOfTheCluster(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	t.Setenv("KUBECONFIG", e.Kubeconfig)
	cfg := e.Config("test")
	_, _, err := runTrust(t, "trust", "from-image-policy", "platform")
	require.ErrorContains(t, err, "does not serve the kind")
	assert.Equal(t, command.ExitFailed, command.ExitCode(err))

	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/v1/zz_generated.crd-manifests", "*_clusterimagepolicies.crd.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(data, crd))
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	cluster, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	_, _, err = runTrust(t, "trust", "from-image-policy", "platform")
	require.ErrorContains(t, err, `"platform" not found`)

	require.NoError(t, cluster.Create(t.Context(), imagePolicyOf(t, "platform")))
	printed, stderr, err := runTrust(t, "trust", "from-image-policy", "platform")
	require.NoError(t, err)
	assert.NotContains(t, stderr, "warning")
	offered, _, err := runTrust(t, cobra.ShellCompNoDescRequestCmd, "trust", "from-image-policy", "")
	require.NoError(t, err)
	assert.Equal(t, "platform\n:4\n", offered)

	cm := &corev1.ConfigMap{}
	require.NoError(t, yaml.Unmarshal([]byte(printed), cm))
	require.NoError(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigNamespace}}))
	require.NoError(t, cluster.Create(t.Context(), cm))
	_, stderr, err = runTrust(t, "trust", "from-image-policy", "platform")
	require.NoError(t, err)
	assert.Contains(t, stderr, "warning: ConfigMap openshift-config/cluster-version-operator-trust exists: applying this one replaces the cluster's trust policy\n")
}
