package apply_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	podTemplate = "template: {metadata: {labels: {app: a, b: b}}, spec: {containers: [{name: c, image: i}]}}"
	jobSpec     = "spec: {template: {metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
	pvcSpec     = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: a}"
)

// change is an object and its next release, in which old in text is replaced with next.
type change struct {
	name, apiVersion, kind, text, old, next string
	fields                                  []string
}

// immutableChanges has an entry for every kind in a platform payload that has immutable fields.
var immutableChanges = []change{
	{"Deployment selector", "apps/v1", "Deployment", "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}", "matchLabels: {app: a}", "matchLabels: {b: b}", []string{"spec.selector"}},
	{"DaemonSet selector", "apps/v1", "DaemonSet", "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}", "matchLabels: {app: a}", "matchLabels: {b: b}", []string{"spec.selector"}},
	{"ReplicaSet selector", "apps/v1", "ReplicaSet", "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}", "matchLabels: {app: a}", "matchLabels: {b: b}", []string{"spec.selector"}},
	{"StatefulSet selector", "apps/v1", "StatefulSet", "spec: {serviceName: s, selector: {matchLabels: {app: a}}, " + podTemplate + "}", "matchLabels: {app: a}", "matchLabels: {b: b}", []string{"spec.selector"}},
	{"StatefulSet serviceName", "apps/v1", "StatefulSet", "spec: {serviceName: s, selector: {matchLabels: {app: a}}, " + podTemplate + "}", "serviceName: s", "serviceName: t", []string{"spec.serviceName"}},
	{"StatefulSet podManagementPolicy", "apps/v1", "StatefulSet", "spec: {serviceName: s, selector: {matchLabels: {app: a}}, " + podTemplate + "}", "serviceName: s", "serviceName: s, podManagementPolicy: Parallel", []string{"spec.podManagementPolicy"}},
	{"StatefulSet volumeClaimTemplates", "apps/v1", "StatefulSet", "spec: {serviceName: s, selector: {matchLabels: {app: a}}, " + podTemplate + "}", "serviceName: s", "serviceName: s, volumeClaimTemplates: [{metadata: {name: v}, " + pvcSpec + "}]", []string{"spec.volumeClaimTemplates"}},
	{"Job template", "batch/v1", "Job", jobSpec, "image: i", "image: j", []string{"spec.template"}},
	{"Job completions", "batch/v1", "Job", jobSpec, "spec: {", "spec: {completions: 3, ", []string{"spec.completions"}},
	{"Job completionMode", "batch/v1", "Job", jobSpec, "spec: {", "spec: {completionMode: Indexed, completions: 1, ", []string{"spec.completionMode"}},
	{"Job podFailurePolicy", "batch/v1", "Job", jobSpec, "spec: {", "spec: {podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [1]}}]}, ", []string{"spec.podFailurePolicy", "spec.podReplacementPolicy"}},
	{"Job with a selector of its own", "batch/v1", "Job", strings.Replace(jobSpec, "spec: {", "spec: {manualSelector: true, selector: {matchLabels: {app: a}}, ", 1), "app: a}}, template: {metadata: {labels: {app: a", "app: b}}, template: {metadata: {labels: {app: b", []string{"spec.selector", "spec.template"}},
	{"RoleBinding roleRef", "rbac.authorization.k8s.io/v1", "RoleBinding", "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}", "name: a", "name: b", []string{"roleRef"}},
	{"ClusterRoleBinding roleRef", "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}", "name: a", "name: b", []string{"roleRef"}},
	{"Service to headless", "v1", "Service", "spec: {ports: [{port: 80}]}", "spec: {", "spec: {clusterIP: None, ", []string{"spec.clusterIPs[0]"}},
	{"Service to another address", "v1", "Service", "spec: {ports: [{port: 80}]}", "spec: {", "spec: {clusterIP: 10.0.201.77, ", []string{"spec.clusterIPs[0]"}},
	{"Service from headless", "v1", "Service", "spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}", "clusterIP: None", "clusterIP: 10.0.201.78", []string{"spec.clusterIPs[0]"}},
	{"Service loadBalancerClass", "v1", "Service", "spec: {type: LoadBalancer, loadBalancerClass: a/b, ports: [{port: 80}]}", "a/b", "a/c", []string{"spec.loadBalancerClass"}},
	{"StorageClass parameters", "storage.k8s.io/v1", "StorageClass", "provisioner: p\nparameters: {a: b}", "a: b", "a: c", []string{"parameters"}},
	{"StorageClass provisioner", "storage.k8s.io/v1", "StorageClass", "provisioner: p", "provisioner: p", "provisioner: q", []string{"provisioner"}},
	{"StorageClass reclaimPolicy", "storage.k8s.io/v1", "StorageClass", "provisioner: p", "provisioner: p", "provisioner: p\nreclaimPolicy: Retain", []string{"reclaimPolicy"}},
	{"StorageClass volumeBindingMode", "storage.k8s.io/v1", "StorageClass", "provisioner: p", "provisioner: p", "provisioner: p\nvolumeBindingMode: WaitForFirstConsumer", []string{"volumeBindingMode"}},
	{"CSIDriver attachRequired", "storage.k8s.io/v1", "CSIDriver", "spec: {attachRequired: true}", "true", "false", []string{"spec.attachedRequired"}},
	{"CSIDriver volumeLifecycleModes", "storage.k8s.io/v1", "CSIDriver", "spec: {attachRequired: true}", "true", "true, volumeLifecycleModes: [Ephemeral]", []string{"spec.volumeLifecycleModes"}},
	{"Secret that is immutable", "v1", "Secret", "immutable: true\ndata: {a: Yg==}", "Yg==", "Yw==", []string{"data"}},
	{"Secret that was immutable", "v1", "Secret", "immutable: true\ndata: {a: Yg==}", "immutable: true\n", "", []string{"immutable"}},
	{"Secret type", "v1", "Secret", "type: a\ndata: {a: Yg==}", "type: a", "type: b", []string{"type"}},
	{"ConfigMap that is immutable", "v1", "ConfigMap", "immutable: true\ndata: {a: b}", "a: b", "a: c", []string{"data"}},
	{"ConfigMap binaryData", "v1", "ConfigMap", "immutable: true\ndata: {a: b}", "data: {a: b}", "data: {a: b}\nbinaryData: {c: Yg==}", []string{"binaryData"}},
	{"ConfigMap that was immutable", "v1", "ConfigMap", "immutable: true\ndata: {a: b}", "immutable: true", "immutable: false", []string{"immutable"}},
	{"PriorityClass value", "scheduling.k8s.io/v1", "PriorityClass", "value: 5", "5", "6", []string{"value"}},
	{"PriorityClass preemptionPolicy", "scheduling.k8s.io/v1", "PriorityClass", "value: 5", "value: 5", "value: 5\npreemptionPolicy: Never", []string{"preemptionPolicy"}},
	{"RuntimeClass handler", "node.k8s.io/v1", "RuntimeClass", "handler: a", "handler: a", "handler: b", []string{"handler"}},
	{"IngressClass controller", "networking.k8s.io/v1", "IngressClass", "spec: {controller: a.b/c}", "a.b/c", "a.b/d", []string{"spec.controller"}},
	{"EndpointSlice addressType", "discovery.k8s.io/v1", "EndpointSlice", "addressType: IPv4\nendpoints: []", "IPv4", "IPv6", []string{"addressType"}},
	{"Pod command", "v1", "Pod", "spec: {serviceAccountName: default, containers: [{name: c, image: i, command: [a]}]}", "[a]", "[b]", []string{"spec.containers"}},
	{"custom resource, plain rule", "immutable.example.com/v1", "Fixed", "spec: {plain: a}", "plain: a", "plain: b", []string{"spec.plain"}},
	{"custom resource, rule with a message", "immutable.example.com/v1", "Fixed", "spec: {said: a}", "said: a", "said: b", []string{"spec.said"}},
	{"custom resource, rule with a reason", "immutable.example.com/v1", "Fixed", "spec: {forbidden: a}", "forbidden: a", "forbidden: b", []string{"spec.forbidden"}},
	{"custom resource, changed once", "immutable.example.com/v1", "Fixed", "spec: {once: a}", "once: a", "once: b", []string{"spec.once"}},
	{"custom resource, rule of the object", "immutable.example.com/v1", "Fixed", "spec: {whole: a}", "whole: a", "whole: b", []string{"spec.whole"}},
}

const fixedCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fixeds.immutable.example.com}
spec:
  group: immutable.example.com
  scope: Namespaced
  names: {plural: fixeds, singular: fixed, kind: Fixed, listKind: FixedList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-validations: [{rule: "!has(self.spec.whole) || self.spec.whole == oldSelf.spec.whole"}]
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "!has(oldSelf.whim) || has(self.whim)", message: whim must stay}
            properties:
              plain: {type: string, x-kubernetes-validations: [{rule: self == oldSelf}]}
              said: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: said is immutable}]}
              forbidden: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: Value is immutable, reason: FieldValueForbidden}]}
              once: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: once may not be changed once set}]}
              whim: {type: string}
              nested: {type: object, properties: {ours: {type: string}, theirs: {type: string}}}
              whole: {type: string}
              short: {type: string, maxLength: 3}
`

// manifests returns the manifests of the first and the next release.
func (c change) manifests(t *testing.T, namespace, name, annotations string) (first, next *manifest.Manifest) {
	t.Helper()
	head := "apiVersion: " + c.apiVersion + "\nkind: " + c.kind + "\nmetadata: {name: " + name + ", namespace: " + namespace +
		", annotations: {" + annotations + "}}\n"
	changed := strings.Replace(c.text, c.old, c.next, 1)
	require.NotEqual(t, c.text, changed)
	return parse(t, head+c.text), parse(t, head+changed)
}

// decisive omits the requests that only read: reads and dry runs.
func decisive(list []*exchange) []string {
	var left []string
	for _, e := range list {
		if e.method != http.MethodGet && !strings.Contains(e.query, "dryRun") {
			left = append(left, e.method)
		}
	}
	return left
}

func slug(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(name))
}

const recreateAnnotation = api.OnImmutableAnnotation + ": recreate"

func TestImmutableFieldsAreNamed(t *testing.T) {
	serveCRD(t, parse(t, fixedCRD))
	ns := namespace(t)
	allowServiceAccount(t, ns)
	for _, c := range immutableChanges {
		t.Run(c.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := c.manifests(t, ns, "named-"+slug(c.name), "note: x")
			uid := must(t, a, first).UID
			record.drain()
			_, err := a.Apply(t.Context(), next, release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			t.Logf("%v", err)
			assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
			assert.Equal(t, c.fields, failed.Fields)
			for _, field := range c.fields {
				require.ErrorContains(t, err, field)
			}
			require.ErrorContains(t, err, "annotate the manifest with release.openshift.io/on-immutable: recreate")
			require.ErrorContains(t, err, "new name")
			assert.Less(t, len(err.Error()), 600, "the error must not repeat whole templates")
			assert.True(t, apierrors.IsInvalid(err), "callers must be able to read the server's error")
			assert.Equal(t, uid, live(t, first).GetUID())
			requests := record.drain()
			assert.Equal(t, []string{http.MethodPatch}, decisive(requests))
			assert.LessOrEqual(t, len(requests), 6, "%v", methods(requests))
		})
	}
}

// allowServiceAccount creates the service account that admission requires for pods.
func allowServiceAccount(t *testing.T, ns string) {
	t.Helper()
	a, _ := connect(t, body.Owner{})
	must(t, a, parse(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: "+ns+"}"))
}

func TestImmutableFieldsAreChangedByRecreation(t *testing.T) {
	serveCRD(t, parse(t, fixedCRD))
	ns := namespace(t)
	allowServiceAccount(t, ns)
	for _, c := range immutableChanges {
		t.Run(c.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := c.manifests(t, ns, "again-"+slug(c.name), recreateAnnotation)
			uid := must(t, a, first).UID
			record.drain()
			got := must(t, a, next)
			if got.Action == apply.Deleting { // the test cluster has no garbage collector
				assert.True(t, got.Deleting)
				assert.Equal(t, []string{http.MethodPatch, http.MethodDelete}, decisive(record.drain()))
				assert.Equal(t, uid, got.UID)
				assert.Contains(t, got.Message, "waiting for ")
				assert.Contains(t, got.Message, c.fields[0])
				before := live(t, next)
				assert.NotNil(t, before.GetDeletionTimestamp())

				got = must(t, a, next)
				assert.Equal(t, apply.Deleting, got.Action)
				assert.Len(t, record.drain(), 2)
				assert.Equal(t, before, live(t, next), "an object that is being deleted must not be applied")

				collectGarbage(t, next)
				got = must(t, a, next)
				assert.Equal(t, apply.Created, got.Action)
				assert.Len(t, record.drain(), 1)
			} else {
				assert.Equal(t, apply.Recreated, got.Action)
				assert.Contains(t, got.Message, c.fields[0])
				assert.Equal(t, []string{http.MethodPatch, http.MethodDelete, http.MethodPatch}, decisive(record.drain()), "the apply is rejected, then the object is deleted and created")
			}
			obj := live(t, next)
			assert.NotEqual(t, uid, obj.GetUID())
			assert.Equal(t, got.UID, obj.GetUID())
			assert.Equal(t, apply.Applied, must(t, a, next).Action)
		})
	}
}

// collectGarbage acts as the garbage collector for an object that is being deleted.
func collectGarbage(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	require.Contains(t, live(t, m).GetFinalizers(), "foregroundDeletion", "the object waits only for its children")
	merge(t, m, `{"metadata":{"finalizers":null}}`)
}

func TestWorkloadsAreDeletedInTheForeground(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	c := immutableChanges[0]
	first, next := c.manifests(t, ns, "fg", recreateAnnotation)
	must(t, a, first)
	got := must(t, a, next)
	assert.Equal(t, apply.Deleting, got.Action)
	assert.Regexp(t, `^deleted at 20\S+Z, waiting for its finalizers foregroundDeletion \(kube-controller-manager removes it\); then it will be recreated, `+
		`because spec.selector cannot be changed: field is immutable$`, got.Message)
}

// TestRecreateSurvivesALostObject simulates a crash after the deletion. The next apply creates the object.
func TestRecreateSurvivesALostObject(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first, next := immutableChange(t, "StorageClass provisioner").manifests(t, ns, "killed", recreateAnnotation)
	must(t, a, first)
	ctx, cancel := withCancel(t)
	deleted := false
	record.before = func(r *http.Request) {
		if deleted {
			cancel()
		}
		deleted = deleted || r.Method == http.MethodDelete
	}
	_, err := a.Apply(ctx, next, release.Updating)
	require.Error(t, err)
	_, err = read(t, next)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	record.before = nil
	assert.Equal(t, apply.Created, must(t, a, next).Action)
}

func immutableChange(t *testing.T, name string) change {
	t.Helper()
	for _, c := range immutableChanges {
		if c.name == name {
			return c
		}
	}
	require.FailNow(t, "no such change", name)
	return change{}
}

func TestRecreateRetriesAfterAConcurrentChange(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first, next := immutableChange(t, "StorageClass provisioner").manifests(t, ns, "busy", recreateAnnotation)
	must(t, a, first)
	edits := 0
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete && edits < 2 {
			edits++
			merge(t, first, `{"metadata":{"annotations":{"edit":"`+strings.Repeat("x", edits)+`"}}}`)
		}
	}
	assert.Equal(t, apply.Recreated, must(t, a, next).Action)
	assert.Equal(t, 2, edits)
}

func TestRecreateSparesANewObjectWithTheSameName(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first, next := immutableChange(t, "StorageClass provisioner").manifests(t, ns, "taken", recreateAnnotation)
	must(t, a, first)
	theirs := first.Object.DeepCopy()
	done := false
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete && !done {
			done = true
			assert.NoError(t, otherClient(t).Delete(t.Context(), theirs.DeepCopy()))
			assert.NoError(t, otherClient(t).Create(t.Context(), theirs.DeepCopy()))
		}
	}
	_, err := a.Apply(t.Context(), next, release.Updating)
	require.ErrorContains(t, err, "another client has recreated it in the meantime")
	provisioner, _, _ := unstructured.NestedString(live(t, first).Object, "provisioner")
	assert.Equal(t, "p", provisioner)
}

// TestRecreateKeepsTheObjectIfTheNewOneIsInvalid changes an immutable field and an invalid one at the same time.
func TestRecreateKeepsTheObjectIfTheNewOneIsInvalid(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	c := immutableChanges[0]
	c.next = "matchLabels: {nothing: like-it}"
	first, next := c.manifests(t, ns, "both", recreateAnnotation)
	uid := must(t, a, first).UID
	_, err := a.Apply(t.Context(), next, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "`selector` does not match template `labels`")
	assert.Equal(t, uid, live(t, first).GetUID())
	assert.Nil(t, live(t, first).GetDeletionTimestamp())
}

// TestRecreateKeepsAFixedNodePort requests a new object while the old one still uses its node port.
func TestRecreateKeepsAFixedNodePort(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	c := change{"", "v1", "Service", "spec: {type: LoadBalancer, loadBalancerClass: a/b, ports: [{port: 80, nodePort: 31234}]}", "a/b", "a/c", nil}
	first, next := c.manifests(t, ns, "ported", recreateAnnotation)
	must(t, a, first)
	assert.Equal(t, apply.Recreated, must(t, a, next).Action)
}

func TestCustomImmutabilityMessagesAreRecognized(t *testing.T) {
	serveCRD(t, parse(t, fixedCRD))
	ns := namespace(t)
	a, _ := connect(t, owner)
	c := change{"", "immutable.example.com/v1", "Fixed", "spec: {whim: a, plain: b}", "whim: a, ", "", nil}
	first, next := c.manifests(t, ns, "whim", "note: x")
	must(t, a, first)
	_, err := a.Apply(t.Context(), next, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.NotEmpty(t, failed.Remedy, "the server would accept it as a new object: %v", err)
	assert.Equal(t, []string{"spec"}, failed.Fields)

	first, next = c.manifests(t, ns, "whim", recreateAnnotation)
	must(t, a, first)
	got := must(t, a, next)
	assert.Equal(t, apply.Recreated, got.Action, "the server would accept it as a new object, and the manifest allows it")
	assert.Contains(t, got.Message, "spec cannot be changed: whim must stay")

	c = change{"", "v1", "Service", "spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}", "clusterIP: None", "type: NodePort", nil}
	first, next = c.manifests(t, ns, "head", recreateAnnotation)
	must(t, a, first)
	got = must(t, a, next)
	assert.Equal(t, apply.Recreated, got.Action)
	assert.Contains(t, got.Message, "may not be set to 'None' for NodePort services")
}

func TestInvalidFieldsAreNotReportedAsImmutable(t *testing.T) {
	serveCRD(t, parse(t, fixedCRD))
	ns := namespace(t)
	for _, c := range []change{
		{"too long", "immutable.example.com/v1", "Fixed", "spec: {short: a}", "short: a", "short: immutable", []string{"spec.short"}},
		{
			"selector of something else", "apps/v1", "Deployment", "spec: {selector: {matchLabels: {app: a}}, " + podTemplate + "}",
			"labels: {app: a", "labels: {app: immutable",
			[]string{"spec.template.metadata.labels"},
		},
		{"bad port", "v1", "Service", "spec: {ports: [{port: 80}]}", "80", "80000", []string{"spec.ports[0].port", "spec.ports[0].targetPort"}},
	} {
		for _, annotation := range []string{"note: x", recreateAnnotation} {
			t.Run(c.name+" "+annotation, func(t *testing.T) {
				a, _ := connect(t, owner)
				first, next := c.manifests(t, ns, slug(c.name), annotation)
				uid := must(t, a, first).UID
				for range 2 {
					_, err := a.Apply(t.Context(), next, release.Updating)
					var failed *failure.Error
					require.ErrorAs(t, err, &failed)
					assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
					assert.Equal(t, c.fields, failed.Fields)
					assert.Contains(t, failed.Remedy, "correct the release's manifest")
				}
				assert.Equal(t, uid, live(t, first).GetUID())
			})
		}
	}
}

func TestSomeKindsAreNeverRecreated(t *testing.T) {
	serveCRD(t, parse(t, fixedCRD))
	ns := namespace(t)
	crd := func(scope string) string {
		return strings.NewReplacer("Namespaced", scope, "fixeds", "stays", "fixed", "stay", "Fixed", "Stay",
			"stays.immutable.example.com}", "stays.immutable.example.com, annotations: {"+recreateAnnotation+"}}").Replace(fixedCRD)
	}
	pvc := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: " + ns + ", name: a, annotations: {" + recreateAnnotation + "}}\n" + pvcSpec
	pv := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: stays, annotations: {" + recreateAnnotation + "}}\n" +
		"spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}"
	for _, tt := range []struct{ name, first, next, field string }{
		{"CRD", crd("Namespaced"), crd("Cluster"), "spec.scope"},
		{"claim", pvc, strings.ReplaceAll(pvc, "storageClassName: a", "storageClassName: b"), "spec.storageClassName"},
		{"volume", pv, strings.ReplaceAll(pv, "path: /a", "path: /b"), "spec.persistentvolumesource"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			m := parse(t, tt.first)
			if must(t, a, m); tt.name == "CRD" {
				serveCRD(t, m) // the scope is fixed from now on
			}
			record.drain()
			_, err := a.Apply(t.Context(), parse(t, tt.next), release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Contains(t, failed.Fields, tt.field)
			require.ErrorContains(t, err, "the operator never deletes objects of kind")
			for _, r := range record.drain() {
				assert.NotEqual(t, http.MethodDelete, r.method)
			}
			assert.Nil(t, live(t, m).GetDeletionTimestamp())
		})
	}
}

func TestImmutableTextsAreQuoted(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	first, next := immutableChanges[0].manifests(t, ns, "words", "note: x")
	must(t, a, first)
	_, err := a.Apply(t.Context(), next, release.Updating)
	assert.EqualError(t, err, "could not update Deployment.apps "+ns+"/words (0000_50_x_y.yaml): the existing object cannot be changed to "+
		"this one: spec.selector cannot be changed: field is immutable; annotate the manifest with "+
		"release.openshift.io/on-immutable: recreate to allow deleting and recreating the object, or give it a new name")
}

// TestRecreateNamesTheFailedStep makes each step fail, either in the server or because of another client. The error must name the step.
func TestRecreateNamesTheFailedStep(t *testing.T) {
	ns := namespace(t)
	c := immutableChange(t, "StorageClass provisioner")
	for _, tt := range []struct{ name, method, says string }{
		{"look", http.MethodGet, "connection reset"},
		{"ask", http.MethodPost, "checking whether it can be recreated"},
		{"delete", http.MethodDelete, "deleting it to recreate it, because provisioner cannot be changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := c.manifests(t, ns, "fails-"+tt.name, recreateAnnotation)
			uid := must(t, a, first).UID
			through := record.next
			record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == tt.method {
					return nil, errors.New("connection reset")
				}
				return through.RoundTrip(r)
			})
			_, err := a.Apply(t.Context(), next, release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonClusterDown, failed.Reason)
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, uid, live(t, first).GetUID())
			record.next = through
			assert.Equal(t, apply.Recreated, must(t, a, next).Action)
		})
	}
}

func TestRecreateGivesUpOnAPersistentWriter(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first, next := immutableChange(t, "StorageClass provisioner").manifests(t, ns, "never", recreateAnnotation)
	must(t, a, first)
	edits := 0
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete {
			edits++
			merge(t, first, `{"metadata":{"annotations":{"edit":"`+strings.Repeat("x", edits)+`"}}}`)
		}
	}
	_, err := a.Apply(t.Context(), next, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceConflict, failed.Reason)
	require.ErrorContains(t, err, "it kept changing")
}

// TestRecreateAcceptsADeletionByAnotherClient lets another client delete the object first.
func TestRecreateAcceptsADeletionByAnotherClient(t *testing.T) {
	ns := namespace(t)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		t.Run(method, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := immutableChange(t, "StorageClass provisioner").manifests(t, ns, "goes-"+strings.ToLower(method), recreateAnnotation)
			must(t, a, first)
			record.before = func(r *http.Request) {
				if r.Method == method {
					assert.NoError(t, otherClient(t).Delete(t.Context(), first.Object.DeepCopy()))
				}
			}
			assert.Equal(t, apply.Recreated, must(t, a, next).Action)
		})
	}
}

// TestDeniedUpdatesAreNoImmutableFields uses a policy with the default reason, which is the same as that of immutable fields.
func TestDeniedUpdatesAreNoImmutableFields(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	first, next := configMap(t, ns, "a", "{"+recreateAnnotation+"}", "{k: v}"), configMap(t, ns, "a", "{"+recreateAnnotation+"}", "{k: w}")
	uid := must(t, a, first).UID
	deny(t, first, "{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [UPDATE]}", "object.?data == oldObject.?data", "Invalid")
	_, err := a.Apply(t.Context(), next, release.Updating)
	require.ErrorContains(t, err, "ValidatingAdmissionPolicy")
	assert.NotContains(t, err.Error(), "cannot be changed")
	assert.Equal(t, uid, live(t, first).GetUID())
}

// TestLateDefinitionsMakeNoImmutableFields changes a definition between the rejected apply and the dry run with a new object. Another writer's
// value has nothing to do with it.
func TestLateDefinitionsMakeNoImmutableFields(t *testing.T) {
	crd := parse(t, strings.NewReplacer("fixeds", "lates", "fixed", "late", "Fixed", "Late").Replace(fixedCRD))
	serveCRD(t, crd)
	ns := namespace(t)
	a, record := connect(t, owner)
	c := change{"", "immutable.example.com/v1", "Late", "spec: {nested: {ours: a}, short: a}", "short: a", "short: long", nil}
	first, next := c.manifests(t, ns, "a", recreateAnnotation)
	uid := must(t, a, first).UID
	as(t, "other", first, types.MergePatchType, `{"spec":{"nested":{"theirs":"a"}}}`)
	changed := false
	record.before = func(r *http.Request) {
		if r.Method != http.MethodPost || changed {
			return
		}
		changed = true
		as(t, "tests", crd, types.JSONPatchType, `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/short/maxLength"}]`)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"short":"long"}}`))
		require.Eventually(t, func() bool {
			return otherClient(t).Patch(t.Context(), live(t, first), patch, client.DryRunAll) == nil
		}, eventually, tick)
	}
	_, err := a.Apply(t.Context(), next, release.Updating)
	require.ErrorContains(t, err, "spec.short")
	assert.NotContains(t, err.Error(), "cannot be changed")
	assert.NotContains(t, err.Error(), "remove")
	assert.Equal(t, apply.Applied, must(t, a, next).Action)
	assert.Equal(t, uid, live(t, first).GetUID())
}
