//go:build linux

package nodes_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/payload"
)

// manifests returns the objects of the stage as a release installs them, in order.
func manifests(t *testing.T) (list []*unstructured.Unstructured) {
	t.Helper()
	fsys := fstest.MapFS{
		payload.OperatorDir:    {Mode: fs.ModeDir | 0o755},
		payload.MetadataFile:   {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.0.0"}`)},
		payload.ReferencesFile: {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.0.0"}}`)},
	}
	folder := os.DirFS("../../manifests/node")
	files, err := fs.Glob(folder, "*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := fs.ReadFile(folder, file)
		require.NoError(t, err)
		fsys[path.Join(payload.ReleaseDir, file)] = &fstest.MapFile{Data: data}
	}
	p, err := payload.Load(fsys, "registry.example/release@sha256:"+strings.Repeat("0", 64), payload.Options{})
	require.NoError(t, err)
	require.Empty(t, p.Warnings)
	for _, m := range p.Manifests {
		list = append(list, m.Object)
	}
	return list
}

// decoded returns the objects of a kind from the manifests.
func decoded[T any](t *testing.T, kind string) (list []T) {
	t.Helper()
	for _, object := range manifests(t) {
		if object.GetKind() == kind {
			var o T
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &o, true))
			list = append(list, o)
		}
	}
	require.NotEmpty(t, list, kind)
	return list
}

// install applies the manifests and waits until the API server knows the roles.
func (s *stage) install() {
	s.t.Helper()
	strict := client.WithFieldValidation(s.client, metav1.FieldValidationStrict)
	for _, object := range manifests(s.t) {
		apply := client.ApplyConfigurationFromUnstructured(object)
		require.NoError(s.t, strict.Apply(s.t.Context(), apply, client.FieldOwner("test"), client.ForceOwnership), "%s", object.GetName())
	}
	// The last objects of their kinds: a Role and its binding, and a ClusterRole and its binding.
	for _, last := range []authorizationv1.ResourceAttributes{
		{Namespace: metav1.NamespaceDefault, Verb: "create", Resource: "events"},
		{Verb: "patch", Resource: "nodes"},
	} {
		s.eventually(func(c *assert.CollectT) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: account(api.MachineConfigController), ResourceAttributes: &last,
			}}
			require.NoError(c, s.client.Create(s.t.Context(), review))
			assert.True(c, review.Status.Allowed)
		})
	}
}

func account(name string) string {
	return "system:serviceaccount:" + api.MachineConfigNamespace + ":" + name
}

// daemonPod creates the pod of a node's daemon.
func (s *stage) daemonPod(node string) *corev1.Pod {
	s.t.Helper()
	set := "machine-config-daemon"
	if strings.HasPrefix(node, "m") {
		set = "machine-config-daemon-control-plane"
	}
	sets := decoded[appsv1.DaemonSet](s.t, "DaemonSet")
	template := sets[slices.IndexFunc(sets, func(d appsv1.DaemonSet) bool { return d.Name == set })].Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: api.MachineConfigNamespace, Name: "daemon-" + node, Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set, UID: "1", Controller: new(true)}},
		},
		Spec: template.Spec,
	}
	pod.Spec.NodeName = node
	require.NoError(s.t, s.client.Create(s.t.Context(), pod))
	s.t.Cleanup(func() {
		assert.NoError(s.t, s.client.Delete(context.WithoutCancel(s.t.Context()), pod, client.GracePeriodSeconds(0)))
	})
	return pod
}

// token returns a token of an account. It belongs to a pod as in the pod's file system, or to none.
func (s *stage) token(name string, pod *corev1.Pod) string {
	s.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: api.MachineConfigNamespace, Name: name}}
	require.NoError(s.t, s.client.SubResource("token").Create(s.t.Context(), owner, request))
	return request.Status.Token
}

// kubeconfig returns a file with which a process of the stage has its own permissions.
func (s *stage) kubeconfig(token string) string {
	s.t.Helper()
	cluster, err := clientcmd.LoadFromFile(s.env.Kubeconfig)
	require.NoError(s.t, err)
	for _, user := range cluster.AuthInfos {
		user.Token, user.ClientCertificateData, user.ClientKeyData = token, nil, nil
	}
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	require.NoError(s.t, clientcmd.WriteToFile(*cluster, file))
	return file
}

// readable returns the names of the configs in a role of the daemons.
func (s *stage) readable(c *assert.CollectT, role string) (names []string) {
	r := &rbacv1.ClusterRole{}
	require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: role}, r))
	for _, rule := range r.Rules {
		assert.NotEmpty(c, rule.ResourceNames, "a rule without names allows all")
		assert.Equal(c, []string{"get"}, rule.Verbs)
		names = append(names, rule.ResourceNames...)
	}
	return names
}

// TestDaemonsReadConfigsInUse follows the roles from no config to a second one. Then an administrator empties one, and deletes it.
//
//threat:worker-reads-control-plane
func TestDaemonsReadConfigsInUse(t *testing.T) {
	s := start(t, "m0", "n1")
	s.eventually(func(c *assert.CollectT) { // it leads
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, &mcfgv1.MachineConfigPool{}))
	})
	s.stop[0]()
	for _, role := range []string{api.ControlPlaneConfigReader, api.MachineConfigReader} {
		stale := client.RawPatch(types.MergePatchType, []byte(`{"rules":[{"apiGroups":["machineconfiguration.openshift.io"],
			"resources":["machineconfigs"],"resourceNames":["stale"],"verbs":["get"]}]}`))
		require.NoError(t, s.client.Patch(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}}, stale))
	}
	s.controller("1.0.0")
	lists := func(controlPlane, others []string) {
		t.Helper()
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, controlPlane, s.readable(c, api.ControlPlaneConfigReader))
			assert.Equal(c, others, s.readable(c, api.MachineConfigReader))
		})
	}
	lists(nil, nil)
	s.config("00-worker", nil)
	s.configFor(api.ControlPlanePool, "00-master", nil)
	first := s.updatedPool(api.WorkerPool, "", 1)
	master := s.updatedPool(api.ControlPlanePool, "", 1)
	lists([]string{master}, []string{first})
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	second := s.updatedPool(api.WorkerPool, first, 1)
	lists([]string{master}, []string{second})

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: api.MachineConfigReader}}
	require.NoError(t, s.client.Patch(t.Context(), role, client.RawPatch(types.MergePatchType, []byte(`{"rules":[]}`))))
	lists([]string{master}, []string{second})
	require.NoError(t, s.client.Delete(t.Context(), role))
	s.config("00-worker", map[string]string{"/etc/motd": "again"})
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, pool.Message(p, pool.NodesWaiting), "ClusterRole machine-config-daemon-configs")
	})
	assert.Equal(t, second, s.node("n1").Annotations[api.DesiredConfigAnnotation])
	require.NoError(t, s.client.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: api.MachineConfigReader}}))
	third := s.updatedPool(api.WorkerPool, second, 1)
	lists([]string{master}, []string{third})
}

// stolen sends requests with a stolen token.
type stolen struct {
	t      *testing.T
	client rest.Interface
}

func (s *stage) steal(token string) stolen {
	s.t.Helper()
	cfg := rest.AnonymousClientConfig(s.env.Config("thief"))
	cfg.BearerToken, cfg.NegotiatedSerializer = token, clientgoscheme.Codecs
	c, err := rest.UnversionedRESTClientFor(cfg)
	require.NoError(s.t, err)
	return stolen{s.t, c}
}

// do sends a request. A PATCH is a merge patch.
func (s stolen) do(verb, path, body string) error {
	s.t.Helper()
	address, err := url.Parse(path)
	require.NoError(s.t, err)
	request := s.client.Verb(verb).AbsPath(address.Path).Body([]byte(body))
	for key, values := range address.Query() {
		request = request.Param(key, values[0])
	}
	kind := runtime.ContentTypeJSON
	if verb == http.MethodPatch {
		kind = string(types.MergePatchType)
	}
	return request.SetHeader("Content-Type", kind).Do(s.t.Context()).Error()
}

// Paths of the API.
const (
	nodesPath    = "/api/v1/nodes/"
	machinesPath = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes/"
	configsPath  = "/apis/machineconfiguration.openshift.io/v1/machineconfigs/"
	poolsPath    = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/"
	podsPath     = "/api/v1/namespaces/openshift-machine-config-operator/pods"
	rbacPath     = "/apis/rbac.authorization.k8s.io/v1/"
)

func annotation(name, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"machineconfiguration.openshift.io/%s":%s}}}`, name, value)
}

// attack is a request that a daemon must not send. One that is guarded is refused even to an account with cluster-admin.
type attack struct {
	name, verb, path, body string
	guarded                bool
}

// attacks has the attacks of the daemon on node n1 of the workers. master is a config of the control plane.
func attacks(master string) []attack {
	state := annotation("state", `"Done"`)
	const status = `{"status":{"conditions":[]}}`
	return []attack{
		{"annotations of another node", "PATCH", nodesPath + "n2", state, true},
		{"annotations of a control-plane node", "PATCH", nodesPath + "m0", state, true},
		{"the desired config of its node", "PATCH", nodesPath + "n1", annotation("desiredConfig", `"`+master+`"`), true},
		{"the answer to its drain request", "PATCH", nodesPath + "n1", annotation("lastAppliedDrain", `"drain-x"`), true},
		{"a foreign annotation", "PATCH", nodesPath + "n1", `{"metadata":{"annotations":{"example.com/x":"y"}}}`, true},
		{"the removal of its annotation", "PATCH", nodesPath + "n1", annotation("state", "null"), true},
		{"the removal of all annotations", "PATCH", nodesPath + "n1", `{"metadata":{"annotations":null}}`, true},
		{"a label of its node", "PATCH", nodesPath + "n1", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, true},
		{"the removal of the labels of its node", "PATCH", nodesPath + "n1", `{"metadata":{"labels":null}}`, true},
		{"a finalizer of its node", "PATCH", nodesPath + "n1", `{"metadata":{"finalizers":["example.com/x"]}}`, true},
		{"an owner of its node", "PATCH", nodesPath + "n1", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n2","uid":"1"}]}}`, true},
		{"a taint of its node", "PATCH", nodesPath + "n1", `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, true},
		{"the cordon of its node", "PATCH", nodesPath + "n1", `{"spec":{"unschedulable":true}}`, true},
		{"the status of its node", "PATCH", nodesPath + "n1/status", status, true},
		{"the deletion of its node", "DELETE", nodesPath + "n1", "", true},
		{"the deletion of all nodes", "DELETE", "/api/v1/nodes", "", true},
		{"a new node", "POST", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}`, true},
		{"the proxy of its node", "GET", nodesPath + "n1/proxy/pods", "", true},
		{"the status of another MachineConfigNode", "PATCH", machinesPath + "n2/status", status, true},
		{"the spec of its MachineConfigNode", "PATCH", machinesPath + "n1", `{"spec":{"pool":{"name":"master"}}}`, true},
		{"the config that its node stages", "PATCH", machinesPath + "n1", `{"metadata":{"annotations":{"cvo.cluster-version.github.io/stage":"` + master + `"}}}`, true},
		{"the deletion of its MachineConfigNode", "DELETE", machinesPath + "n1", "", true},

		{"a config of the control plane", "GET", configsPath + master, "", false},
		{"a source of its config", "GET", configsPath + "00-worker", "", false},
		{"a config that does not exist", "GET", configsPath + "rendered-worker-x", "", false},
		{"the list of configs", "GET", configsPath, "", false},
		{"the list of one config", "GET", configsPath + "?fieldSelector=metadata.name%3D" + master, "", false},
		{"a new config", "POST", configsPath, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"x"}}`, false},
		{"a change of a config", "PATCH", configsPath + master, `{"metadata":{"labels":{"x":"y"}}}`, false},
		{"a pool", "GET", poolsPath + "worker", "", false},
		{"a change of a pool", "PATCH", poolsPath + "worker", `{"spec":{"paused":true}}`, false},
		{"the list of Secrets", "GET", "/api/v1/secrets", "", false},
		{"a Secret of its namespace", "GET", "/api/v1/namespaces/openshift-machine-config-operator/secrets/x", "", false},
		{"the list of pods", "GET", podsPath, "", false},
		{"a new pod", "POST", podsPath, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x"}]}}`, false},
		{"a command in a pod", "POST", podsPath + "/daemon-n2/exec?command=id", "", false},
		{"the eviction of a pod", "POST", podsPath + "/daemon-n2/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"daemon-n2"}}`, false},
		{
			"a token without a node", "POST", "/api/v1/namespaces/openshift-machine-config-operator/serviceaccounts/machine-config-daemon/token",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, false,
		},
		{"its role", "PATCH", rbacPath + "clusterroles/machine-config-daemon-configs", `{"rules":[]}`, false},
		{"a new binding", "POST", rbacPath + "clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",
			"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`, false},
		{"the guard", "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/machine-config-daemon-guard", "", false},
	}
}

// TestStolenDaemonTokenIsLimitedToItsNode tries everything that a daemon does not need. At the end, an administrator has given too many
// permissions to the account.
//
//threat:daemon-token-stolen
func TestStolenDaemonTokenIsLimitedToItsNode(t *testing.T) {
	s := start(t, "m0", "n1", "n2")
	s.config("00-worker", nil)
	s.configFor(api.ControlPlanePool, "00-master", nil)
	worker := s.updatedPool(api.WorkerPool, "", 2)
	master := s.updatedPool(api.ControlPlanePool, "", 1)
	s.eventually(func(c *assert.CollectT) {
		for name := range s.hosts {
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: name}, &mcfgv1.MachineConfigNode{}))
		}
	})
	for _, stop := range s.stop {
		stop()
	}
	thief := s.steal(s.tokens["n1"])
	guards := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'machine-config-daemon-guard'")
	}
	s.eventually(func(c *assert.CollectT) { // the API server compiles policies in the background
		assert.True(c, guards(thief.do("PATCH", nodesPath+"n2?dryRun=All", annotation("state", `"Done"`))))
	})
	ownWritesWork := func(t *testing.T) {
		t.Helper()
		require.NoError(t, thief.do("PATCH", nodesPath+"n1", annotation("reason", `"stolen"`)))
		require.NoError(t, thief.do("PATCH", machinesPath+"n1/status", `{"status":{"observedGeneration":7}}`))
		require.NoError(t, thief.do("GET", configsPath+worker, ""))
	}
	ownWritesWork(t)

	for _, a := range attacks(master) {
		t.Run("refuses "+a.name, func(t *testing.T) {
			err := thief.do(a.verb, a.path, a.body)
			assert.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}
	t.Run("ignores annotations in the status of its MachineConfigNode", func(t *testing.T) {
		require.NoError(t, thief.do("PATCH", machinesPath+"n1/status", `{"metadata":{"annotations":{"cvo.cluster-version.github.io/stage":"`+master+`"}}}`))
		machine := &mcfgv1.MachineConfigNode{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, machine))
		assert.Equal(t, worker, machine.Annotations[api.StageAnnotation])
	})
	t.Run("refuses writes with a token without a node", func(t *testing.T) {
		loose := s.steal(s.token("machine-config-daemon", nil))
		for path, body := range map[string]string{nodesPath + "n1": annotation("state", `"Done"`), machinesPath + "n1/status": `{"status":{"observedGeneration":8}}`} {
			err := loose.do("PATCH", path, body)
			assert.True(t, guards(err), "%v", err)
		}
	})
	t.Run("lets the control plane read its config and not write other nodes", func(t *testing.T) {
		thief := s.steal(s.tokens["m0"])
		require.NoError(t, thief.do("GET", configsPath+master, ""))
		err := thief.do("PATCH", nodesPath+"n1", annotation("state", `"Done"`))
		assert.True(t, guards(err), "%v", err)
	})

	admin := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon-is-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: api.MachineConfigNamespace, Name: "machine-config-daemon"}},
	}
	require.NoError(t, s.client.Create(t.Context(), admin))
	t.Cleanup(func() { assert.NoError(t, s.client.Delete(context.WithoutCancel(t.Context()), admin)) })
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, thief.do("GET", poolsPath+"worker", "")) })
	for _, a := range attacks(master) {
		if !a.guarded {
			continue
		}
		t.Run("refuses "+a.name+" despite cluster-admin", func(t *testing.T) {
			err := thief.do(a.verb, a.path, a.body)
			assert.True(t, guards(err), "%v", err)
		})
	}
	ownWritesWork(t)
}

// TestAccountsCannotBecomeAdministrators compares the permissions of the accounts with a list. None that the release binds leads to others: review that
// before you add one.
//
//threat:node-job-namespace
//threat:node-stage-escalates
func TestAccountsCannotBecomeAdministrators(t *testing.T) {
	const (
		controllerRole = "machine-config-controller"
		config         = ".machineconfiguration.openshift.io: "
		readers        = "machine-config-daemon-configs,machine-config-daemon-control-plane-configs"
	)
	want := map[string][]string{
		"ClusterRole machine-config-daemon": {
			"nodes: list watch patch", "machineconfignodes" + config + "list watch", "machineconfignodes/status" + config + "patch",
			"machineconfigurations.operator.openshift.io cluster: list watch",
		},
		"ClusterRole " + api.MachineConfigReader:      nil, // the controller adds configs that it may read itself
		"ClusterRole " + api.ControlPlaneConfigReader: nil,
		"ClusterRole " + controllerRole: {
			"nodes: list watch patch", "nodes/status: patch", "nodes/finalizers: update", "pods: list watch delete", "pods/eviction: create",
			"poddisruptionbudgets.policy: list watch", "daemonsets.apps: list watch",
			"machineconfigs" + config + "get list watch create patch delete",
			"controllerconfigs" + config + "list watch",
			"kubeletconfigs" + config + "list watch patch", "kubeletconfigs/status" + config + "patch", "kubeletconfigs/finalizers" + config + "update",
			"machineconfignodes" + config + "list watch create patch delete",
			"machineconfigpools" + config + "list watch create patch", "machineconfigpools/status" + config + "patch",
			"machineconfigpools/finalizers" + config + "update",
			"machineconfigurations.operator.openshift.io: list watch", "machineconfigurations/status.operator.openshift.io: patch",
			"noderolloutpolicies.cvo.cluster-version.github.io: list watch", "noderolloutpolicies/status.cvo.cluster-version.github.io: patch",
			"clusteroperators.config.openshift.io: create", "clusteroperators.config.openshift.io machine-config: list watch",
			"clusteroperators/status.config.openshift.io machine-config: patch",
			"clusterroles.rbac.authorization.k8s.io " + readers + ": list watch patch",
		},
		"ClusterRole " + api.NodeJobRole: {"cronjobs.batch: list watch", "jobs.batch: list watch create"}, // the release does not bind it
		"Role openshift-machine-config-operator/" + controllerRole: {
			"leases.coordination.k8s.io: create", "leases.coordination.k8s.io machine-config-controller: get list watch update",
		},
		"Role default/" + controllerRole: {"events: create patch", "endpointslices.discovery.k8s.io kubernetes: get"},
	}
	got := map[string][]string{}
	add := func(role string, rules []rbacv1.PolicyRule) {
		got[role] = nil
		for _, rule := range rules {
			assert.Empty(t, rule.NonResourceURLs)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					object := strings.TrimSuffix(resource+"."+group, ".")
					if len(rule.ResourceNames) > 0 {
						object += " " + strings.Join(rule.ResourceNames, ",")
					}
					got[role] = append(got[role], object+": "+strings.Join(rule.Verbs, " "))
				}
			}
		}
	}
	for _, role := range decoded[rbacv1.ClusterRole](t, "ClusterRole") {
		add("ClusterRole "+role.Name, role.Rules)
	}
	for _, role := range decoded[rbacv1.Role](t, "Role") {
		add("Role "+role.Namespace+"/"+role.Name, role.Rules)
	}
	assert.Len(t, got, len(want))
	for role, permissions := range got {
		assert.Contains(t, want, role)
		assert.ElementsMatch(t, want[role], permissions, role)
	}
	accounts := []string{"machine-config-controller", "machine-config-daemon", "machine-config-daemon-control-plane"}
	bound := func(ref rbacv1.RoleRef, role string, subjects []rbacv1.Subject) {
		assert.Contains(t, want, role, "the roles of the cluster are not bound")
		assert.Equal(t, rbacv1.GroupName, ref.APIGroup)
		for _, subject := range subjects {
			assert.Equal(t, rbacv1.ServiceAccountKind, subject.Kind)
			assert.Equal(t, api.MachineConfigNamespace, subject.Namespace)
			assert.Contains(t, accounts, subject.Name)
			assert.Equal(t, strings.HasSuffix(role, controllerRole), subject.Name == controllerRole, "%s has the permissions of another account", subject.Name)
		}
	}
	for _, b := range decoded[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding") {
		assert.NotEqual(t, api.NodeJobRole, b.RoleRef.Name)
		bound(b.RoleRef, b.RoleRef.Kind+" "+b.RoleRef.Name, b.Subjects)
	}
	for _, b := range decoded[rbacv1.RoleBinding](t, "RoleBinding") {
		bound(b.RoleRef, b.RoleRef.Kind+" "+b.Namespace+"/"+b.RoleRef.Name, b.Subjects)
	}
}

// TestGuardPrecedesRoles checks the order of the manifests, and that the policy fails closed.
//
//threat:daemon-before-guard
func TestGuardPrecedesRoles(t *testing.T) {
	var kinds []string
	for _, object := range manifests(t) {
		kinds = append(kinds, object.GetKind())
	}
	assert.Equal(t, []string{
		"Namespace", "CustomResourceDefinition", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ClusterRole", "ClusterRoleBinding", "ClusterRole", "ClusterRoleBinding", "ClusterRole", "ClusterRoleBinding", "ClusterRole", "ClusterRoleBinding",
		"ClusterRole", "Role", "RoleBinding", "Role", "RoleBinding", "ControllerConfig", "MachineConfig", "DaemonSet", "Deployment", "ClusterOperator",
	}, slices.Compact(kinds))
	fail := admissionv1.Fail
	guard := decoded[admissionv1.ValidatingAdmissionPolicy](t, "ValidatingAdmissionPolicy")[0]
	assert.Equal(t, "machine-config-daemon-guard", guard.Name)
	assert.Equal(t, &fail, guard.Spec.FailurePolicy)
}

// TestPodsExceedThePodSecurityStandardsOnlyWhereTheyMust asks the API server what the standards forbid in the pods.
func TestPodsExceedThePodSecurityStandardsOnlyWhereTheyMust(t *testing.T) {
	s := prepare(t)
	namespace := func(level string) string {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: level + "-", Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest",
		}}}
		require.NoError(t, s.client.Create(t.Context(), n))
		return n.Name
	}
	create := func(namespace string, template corev1.PodTemplateSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}, Spec: template.Spec}
		return s.client.Create(t.Context(), pod, client.DryRunAll)
	}
	deployment := decoded[appsv1.Deployment](t, "Deployment")[0]
	require.NoError(t, create(namespace("restricted"), deployment.Spec.Template))
	baseline := namespace("baseline")
	for _, set := range decoded[appsv1.DaemonSet](t, "DaemonSet") {
		require.NoError(t, create(api.MachineConfigNamespace, set.Spec.Template))
		err := create(baseline, set.Spec.Template)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		_, why, _ := strings.Cut(err.Error(), `violates PodSecurity "baseline:latest": `)
		assert.Equal(t, `forbidden AppArmor profile (container "machine-config-daemon" must not set AppArmor profile type to "Unconfined"), `+
			`non-default capabilities (container "machine-config-daemon" must not include "DAC_READ_SEARCH" in securityContext.capabilities.add), `+
			`hostPath volumes (volumes "host", "folder"), `+
			`seLinuxOptions (container "machine-config-daemon" set forbidden securityContext.seLinuxOptions: type "spc_t")`, why)
		folder := path.Join("/host", config.Folder)
		for _, mount := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
			assert.Equal(t, mount.MountPath != folder, mount.ReadOnly, "%s is the only writable folder", folder)
		}
	}
}

// TestPodsAreOnTheNodesOfTheirRole compares the affinities of the pods with the control plane as the controller defines it.
func TestPodsAreOnTheNodesOfTheirRole(t *testing.T) {
	sets := map[string]corev1.PodSpec{}
	for _, set := range decoded[appsv1.DaemonSet](t, "DaemonSet") {
		sets[set.Name] = set.Spec.Template.Spec
	}
	controller := decoded[appsv1.Deployment](t, "Deployment")[0].Spec.Template.Spec
	canRun := func(spec corev1.PodSpec, n *corev1.Node) bool {
		return pool.CanMove(&corev1.Pod{Spec: spec}, []*corev1.Node{n})
	}
	roles := []string{"control-plane", "master", "arbiter", "worker", "infra"}
	for combination := range 1 << len(roles) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		for i, role := range roles {
			if combination&(1<<i) != 0 {
				n.Labels["node-role.kubernetes.io/"+role] = ""
			}
		}
		isControlPlane := pool.IsControlPlaneNode(n)
		assert.Equal(t, combination&0b111 != 0, isControlPlane, "%v", n.Labels)
		assert.Equal(t, isControlPlane, canRun(sets["machine-config-daemon-control-plane"], n), "%v", n.Labels)
		assert.Equal(t, !isControlPlane, canRun(sets["machine-config-daemon"], n), "%v", n.Labels)
		assert.Equal(t, combination&0b11 != 0, canRun(controller, n), "an arbiter is too small for the controller: %v", n.Labels)
	}
}
