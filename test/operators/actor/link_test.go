package actor

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/test/fixture"
)

func deployment(namespace, name string, env ...string) *appsv1.Deployment {
	c := corev1.Container{Name: "c", Image: "registry.example/" + name}
	for i := 0; i < len(env); i += 2 {
		c.Env = append(c.Env, corev1.EnvVar{Name: env[i], Value: env[i+1]})
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}},
	}
}

func clusterOperator(name string, related ...configv1.ObjectReference) *configv1.ClusterOperator {
	return &configv1.ClusterOperator{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     configv1.ClusterOperatorStatus{RelatedObjects: related},
	}
}

func namespace(name string) configv1.ObjectReference {
	return configv1.ObjectReference{Resource: "namespaces", Name: name}
}

func TestDeploymentsAreLinkedToTheirOperator(t *testing.T) {
	const v = releaseVersionEnv
	all := []*appsv1.Deployment{
		deployment("openshift-machine-api", "machine-api-operator", v, "2"),
		deployment("openshift-machine-api", "cluster-autoscaler-operator", v, "2"),
		deployment("openshift-dns-operator", "dns-operator", v, "2"),
		deployment("openshift-dns-operator", "dns-helper", v, "2"),
		deployment("openshift-catalog", "one", v, "2"),
		deployment("openshift-catalog", "two", v, "2"),
		deployment("shop", "till", v, "2"),
		deployment("openshift-plain", "plain-operator"),
	}
	var workloads []workload
	for _, d := range all {
		if w := newWorkload(d); w.version != "" {
			workloads = append(workloads, w)
		}
	}
	operators := []*configv1.ClusterOperator{
		clusterOperator("machine-api", namespace("openshift-machine-api")),
		clusterOperator("cluster-autoscaler", namespace("openshift-machine-api")),
		clusterOperator("baremetal", namespace("openshift-machine-api")),
		clusterOperator("dns"),
		clusterOperator("catalog"),
		clusterOperator("sales", configv1.ObjectReference{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "till"}),
		clusterOperator("plain"),
	}
	for i, tt := range []struct {
		name string
		want []string
	}{
		{"links the workload with its name", []string{"machine-api-operator"}},
		{"ignores a prefix", []string{"cluster-autoscaler-operator"}},
		{"ignores workloads of other operators", nil},
		{"needs no related objects if the namespace has its name", []string{"dns-operator"}},
		{"links all workloads of its namespace if none has its name", []string{"one", "two"}},
		{"links its related objects", []string{"till"}},
		{"links no workload without a version", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, w := range link(operators[i], workloads, operators) {
				got = append(got, w.name)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestVersionsAreReadFromTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want []configv1.OperandVersion
	}{
		{"reports the release", []string{releaseVersionEnv, "4.1.0"}, []configv1.OperandVersion{
			{Name: "operator", Version: "4.1.0"},
			{Name: "operator-image", Version: "registry.example/x"},
		}},
		{"reports operands", []string{operatorVersionEnv, "4.1.0", operandVersionEnv, "1.36.0", "OPERAND_OAUTH_SERVER_IMAGE_VERSION", "4.1.0_x"}, []configv1.OperandVersion{
			{Name: "operator", Version: "4.1.0"},
			{Name: "oauth-server", Version: "4.1.0_x"},
			{Name: "operator-image", Version: "registry.example/x"},
			{Name: "raw-internal", Version: "4.1.0"},
			{Name: "x", Version: "1.36.0"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, versions("x", []workload{newWorkload(deployment("x", "x", tt.env...))}))
		})
	}
	old, updated := newWorkload(deployment("x", "a", releaseVersionEnv, "1")), newWorkload(deployment("x", "b", releaseVersionEnv, "2"))
	assert.Nil(t, versions("x", []workload{old, updated}), "no version while workloads differ")
	assert.Nil(t, versions("x", nil))
}

// TestRealReleasesReportEveryVersion checks the rules of link and readWorkload with real releases. Using only what an API server shows,
// every ClusterOperator must report every version that its manifest requires.
func TestRealReleasesReportEveryVersion(t *testing.T) {
	dir := fixture.Testdata(t)
	for _, release := range []string{"4.22.9", "4.23.0"} {
		t.Run(release, func(t *testing.T) {
			operators, deployments := readRelease(t, filepath.Join(dir, "payloads", release, "release-manifests"))
			require.Len(t, operators, 33)
			assertAllReport(t, operators, deployments)
		})
	}
}

// TestExamplePlatformReportsEveryVersion checks the same with the platform that users copy.
func TestExamplePlatformReportsEveryVersion(t *testing.T) {
	for _, release := range []string{"1.0.0", "1.1.0"} {
		t.Run(release, func(t *testing.T) {
			operators, deployments := readRelease(t, filepath.Join("../../../examples/platform", release, "*"))
			require.NotEmpty(t, operators)
			assertAllReport(t, operators, deployments)
		})
	}
}

func assertAllReport(t *testing.T, operators []*configv1.ClusterOperator, deployments []*appsv1.Deployment) {
	t.Helper()
	var workloads []workload
	for _, d := range deployments {
		if w := newWorkload(d); w.version != "" {
			workloads = append(workloads, w)
		}
	}
	for _, operator := range operators {
		reported := versions(operator.Name, link(operator, workloads, operators))
		for _, want := range operator.Status.Versions {
			assert.Contains(t, reported, want, operator.Name)
		}
	}
}

// readRelease returns the ClusterOperators and Deployments that a default cluster gets.
func readRelease(t *testing.T, dir string) (operators []*configv1.ClusterOperator, deployments []*appsv1.Deployment) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, file)
			var meta metav1.PartialObjectMetadata
			if yaml.Unmarshal(doc, &meta) != nil || !byDefault(meta.Annotations) {
				continue
			}
			switch meta.Kind {
			case "ClusterOperator":
				operator := &configv1.ClusterOperator{}
				require.NoError(t, yaml.Unmarshal(doc, operator), file)
				operators = append(operators, operator)
			case "Deployment":
				d := &appsv1.Deployment{}
				require.NoError(t, yaml.Unmarshal(doc, d), file)
				deployments = append(deployments, d)
			}
		}
	}
	return operators, deployments
}

// byDefault reports whether a manifest is for the default profile without feature gates.
func byDefault(annotations map[string]string) bool {
	set, hasSet := annotations["release.openshift.io/feature-set"]
	gate := annotations["release.openshift.io/feature-gate"]
	return annotations["include.release.openshift.io/self-managed-high-availability"] == "true" &&
		annotations["release.openshift.io/delete"] == "" &&
		(gate == "" || strings.HasPrefix(gate, "-")) &&
		(!hasSet || strings.Contains(","+set+",", ",Default,"))
}
