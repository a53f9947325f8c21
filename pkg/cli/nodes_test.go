package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// nodeCluster is a cluster with the kinds of the node stage, behind a proxy that records requests. Its nodes and pools are gone after the test.
type nodeCluster struct {
	*testing.T
	api        client.Client
	kubeconfig string
	// requests are the methods and paths of the commands' requests, without discovery.
	requests []string
}

func newNodeCluster(t *testing.T) *nodeCluster {
	t.Helper()
	e := withoutPlatform.For(t)
	for _, file := range []string{
		"../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigs.crd.yaml",
		"../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigpools-Default.crd.yaml",
		"../../../operator/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigurations-Default.crd.yaml",
	} {
		t.Cleanup(e.Serve(t, file))
	}
	c := &nodeCluster{T: t}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{mcfgv1.Install, operatorv1.Install, corev1.AddToScheme, policyv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	var err error
	c.api, err = client.New(e.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &operatorv1.MachineConfiguration{}, &corev1.Node{}} {
			assert.NoError(t, c.api.DeleteAllOf(ctx, kind))
		}
		for _, kind := range []client.Object{&corev1.Pod{}, &policyv1.PodDisruptionBudget{}} {
			assert.NoError(t, c.api.DeleteAllOf(ctx, kind, client.InNamespace("default"), client.GracePeriodSeconds(0)))
		}
	})
	c.kubeconfig = proxied(t, e.Config("test"), func(r *http.Request) {
		if r.URL.Path != "/api" && r.URL.Path != "/apis" && strings.Count(r.URL.Path, "/") != 3 || r.URL.Path == "/api/v1/nodes" || r.URL.Path == "/api/v1/pods" {
			c.requests = append(c.requests, r.Method+" "+r.URL.Path)
		}
	})
	return c
}

// run runs cvo nodes.
func (c *nodeCluster) run(args ...string) (out, errs string, code int) {
	c.Helper()
	c.requests = nil
	return nodesCommand(c.T, "", append(args, "--kubeconfig", c.kubeconfig)...)
}

func nodesCommand(t *testing.T, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(in), Out: &stdout, Err: &stderr})
	cmd.SetArgs(append([]string{"nodes"}, args...))
	executed, err := cmd.ExecuteContextC(t.Context())
	cli.PrintError(&stderr, executed, err)
	return stdout.String(), stderr.String(), command.ExitCode(err)
}

// create creates an object, and writes its status.
func (c *nodeCluster) create(object client.Object) {
	c.Helper()
	withStatus, ok := object.DeepCopyObject().(client.Object)
	require.True(c, ok)
	require.NoError(c, c.api.Create(c.Context(), object))
	withStatus.SetResourceVersion(object.GetResourceVersion())
	withStatus.SetUID(object.GetUID())
	if _, plain := object.(*mcfgv1.MachineConfig); !plain {
		require.NoError(c, c.api.Status().Update(c.Context(), withStatus))
	}
}

// pool creates a pool that selects nodes and MachineConfigs with its role.
func (c *nodeCluster) pool(name, config string) *mcfgv1.MachineConfigPool {
	c.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: name}}
	p.Spec.Configuration.Name = config
	c.create(p)
	return p
}

// node creates a ready node that runs a config.
func (c *nodeCluster) node(name, role, config string) {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"node-role.kubernetes.io/" + role: ""},
		Annotations: map[string]string{api.CurrentConfigAnnotation: config, api.DesiredConfigAnnotation: config, api.NodeStateAnnotation: api.NodeDone},
	}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	c.create(n)
}

func TestNodesCommandsOfAClusterWithoutTheStage(t *testing.T) {
	kubeconfig := withoutPlatform.For(t).Kubeconfig
	for _, args := range [][]string{{"status"}, {"status", "worker"}} {
		out, errs, code := nodesCommand(t, "", append(args, "--kubeconfig", kubeconfig)...)
		assert.Equal(t, command.ExitFailed, code, "%v", args)
		assert.Empty(t, out, "%v", args)
		assert.Equal(t, "error: this cluster has no MachineConfigPools, so it has no node stage: update to a release that contains the stage, "+
			"or select another cluster with --context\n", errs, "%v", args)
	}
}

func TestNodesCommandsRejectInvalidCommandLines(t *testing.T) {
	for _, args := range [][]string{{"status", "a", "b"}, {"status", "-o", "xml"}, {"unknown"}} {
		_, _, code := nodesCommand(t, "", args...)
		assert.Equal(t, command.ExitUsage, code, "%v", args)
	}
}

func TestNodesStatusReadsPoolsAndNodes(t *testing.T) {
	c := newNodeCluster(t)
	out, _, code := c.run("status")
	assert.Zero(t, code)
	assert.Equal(t, "There are no MachineConfigPools yet.\n", out)

	c.pool("worker", "rendered-worker-1")
	c.node("w-0", "worker", "rendered-worker-1")
	c.node("w-1", "worker", "rendered-worker-0")
	c.node("stray", "none", "rendered-worker-0")
	out, errs, code := c.run("status")
	assert.Zero(t, code)
	assert.Empty(t, errs)
	assert.Equal(t, []string{"GET /apis/machineconfiguration.openshift.io/v1/machineconfigpools", "GET /api/v1/nodes"}, c.requests)
	assert.Contains(t, out, "worker  Updating  2      1     0         0         0 of 1       rendered-worker-1\n")
	assert.Contains(t, out, "w-1   Waiting  -      -        worker-0 -> worker-1  -\n")
	assert.Contains(t, out, "1 node in no pool: stray\n")

	out, _, code = c.run("status", "worker", "-o", "json")
	assert.Zero(t, code)
	var got nodes.Status
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, []nodes.Node{{Name: "w-1", Phase: nodes.Waiting, Current: "rendered-worker-0", Desired: "rendered-worker-1"}}, got.Pools[0].Nodes)

	_, errs, code = c.run("status", "master")
	assert.Equal(t, command.ExitFailed, code)
	assert.Equal(t, "error: there is no MachineConfigPool \"master\": the pools are worker\n", errs)

	var completed bytes.Buffer
	cmd := cli.New(command.Streams{Out: &completed, Err: &bytes.Buffer{}})
	cmd.SetArgs([]string{"__completeNoDesc", "nodes", "status", "--kubeconfig", c.kubeconfig, ""})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Equal(t, "worker\n:4\n", completed.String())
}
