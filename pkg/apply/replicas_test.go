package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// scalable returns a Deployment or StatefulSet in the namespace, with one line more in its spec.
func scalable(t *testing.T, kind, ns, line string) *manifest.Manifest {
	t.Helper()
	return parse(t, `
apiVersion: apps/v1
kind: `+kind+`
metadata: {name: web, namespace: `+ns+`}
spec:
  `+line+`
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example.com/web}]}
`)
}

func replicasOf(t *testing.T, m *manifest.Manifest) int64 {
	t.Helper()
	n, _, err := unstructured.NestedInt64(live(t, m).Object, "spec", "replicas")
	require.NoError(t, err)
	return n
}

func TestDroppedReplicasKeepTheirValue(t *testing.T) {
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		t.Run("of a "+kind, func(t *testing.T) {
			ns := namespace(t)
			a, record := connect(t, owner)
			before, after := scalable(t, kind, ns, "replicas: 3"), scalable(t, kind, ns, "minReadySeconds: 5")
			must(t, a, before)

			for _, mode := range []release.Mode{release.Updating, release.Initializing} { // a release may replace another one during an install
				predicted, err := a.Predict(t.Context(), after, mode)
				require.NoError(t, err)
				assert.Equal(t, "spec.replicas stays at 3, because the manifest no longer sets it", predicted.Message)
				n, _, _ := unstructured.NestedInt64(predicted.Object.Object, "spec", "replicas")
				assert.EqualValues(t, 3, n)
			}
			assert.EqualValues(t, 3, replicasOf(t, before))
			record.drain()

			change := must(t, a.With(apply.Options{}), after)
			assert.Equal(t, "spec.replicas keeps its value, because the manifest no longer sets it", change.Message)
			assert.Equal(t, []string{http.MethodGet, "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()))
			assert.EqualValues(t, 3, replicasOf(t, after))
			assert.NotContains(t, string(ours(live(t, after)).FieldsV1.GetRawBytes()), "f:replicas")

			as(t, "autoscaler", after, types.MergePatchType, `{"spec":{"replicas":7}}`)
			assert.Empty(t, must(t, a.With(apply.Options{}), after).Message)
			assert.EqualValues(t, 7, replicasOf(t, after))
			record.drain()
			must(t, a, after)
			assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()), "a watch saves the read")

			must(t, a, before)
			assert.EqualValues(t, 3, replicasOf(t, after), "a manifest that sets the number again wins")
		})
	}
}

// Another manager's ownership keeps the value anyway.
func TestDroppedReplicasOfAnAutoscalerNeedNoPatch(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	before, after := scalable(t, "Deployment", ns, "replicas: 3"), scalable(t, "Deployment", ns, "minReadySeconds: 5")
	must(t, a, before)
	shared := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": ns},
		"spec": map[string]any{"replicas": int64(3)},
	}}
	require.NoError(t, otherClient(t).Apply(t.Context(), client.ApplyConfigurationFromUnstructured(shared), client.FieldOwner("autoscaler")))
	record.drain()
	change := must(t, a.With(apply.Options{}), after)
	assert.Equal(t, []string{http.MethodGet, "PATCH apply-patch"}, methods(record.drain()))
	assert.Empty(t, change.Message)
	assert.EqualValues(t, 3, replicasOf(t, after))
}

// pools serves a kind whose scale subresource writes spec.size.count, and returns a function that returns manifests of it.
func pools(t *testing.T, sizeType string) (a *apply.Applier, pool func(spec string) *manifest.Manifest) {
	t.Helper()
	ns := namespace(t)
	group := strings.ReplaceAll(ns, "-", "") + ".example.com"
	crd := parse(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {kind: Pool, plural: pools, singular: pool, listKind: PoolList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.size.count, statusReplicasPath: .status.count}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {note: {type: string}, size: {type: object, x-kubernetes-map-type: `+sizeType+`, properties: {
        count: {type: integer}, unit: {type: string}}}}},
      status: {type: object, properties: {count: {type: integer}}}}}}
`)
	serveCRD(t, crd)
	a, _ = connectBy(t, owner, kinds.NewMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd}))
	return a, func(spec string) *manifest.Manifest {
		return parse(t, "apiVersion: "+group+"/v1\nkind: Pool\nmetadata: {name: a, namespace: "+ns+"}\nspec: "+spec)
	}
}

// The definition of a custom resource names the field that its scale subresource writes.
func TestDroppedReplicasOfACustomResourceKeepTheirValue(t *testing.T) {
	a, pool := pools(t, "granular")
	applied := must(t, a, pool("{note: x, size: {count: 4}}"))
	want := map[string]any{"note": "later", "size": map[string]any{"count": int64(4)}}
	predicted, err := a.Predict(t.Context(), pool("{note: later}"), release.Updating)
	require.NoError(t, err)
	assert.Equal(t, want, predicted.Object.Object["spec"])
	change, err := a.With(apply.Options{UID: applied.UID}).Apply(t.Context(), pool("{note: later}"), release.Initializing)
	require.NoError(t, err)
	assert.Equal(t, "spec.size.count keeps its value, because the manifest no longer sets it", change.Message)
	assert.Equal(t, want, live(t, pool("{}")).Object["spec"])
}

func TestDroppedReplicasStayWithoutTheRestOfTheirParent(t *testing.T) {
	a, pool := pools(t, "granular")
	must(t, a, pool("{note: x, size: {count: 4, unit: pods}}"))
	change := must(t, a, pool("{note: later}"))
	assert.Equal(t, "spec.size.count keeps its value, because the manifest no longer sets it", change.Message)
	assert.Equal(t, map[string]any{"note": "later", "size": map[string]any{"count": int64(4)}}, live(t, pool("{}")).Object["spec"])
	assert.Contains(t, managers(live(t, pool("{}"))), "kept-scale Update scale v1")

	scaled := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(6)}}}
	require.NoError(t, otherClient(t).SubResource("scale").Patch(t.Context(), live(t, pool("{}")), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":6}}`)),
		client.WithSubResourceBody(scaled), client.FieldOwner("autoscaler")))
	assert.NotContains(t, strings.Join(managers(live(t, pool("{}"))), " "), "kept-scale", "the autoscaler owns the field")
	must(t, a, pool("{note: last}"))
	assert.Equal(t, map[string]any{"note": "last", "size": map[string]any{"count": int64(6)}}, live(t, pool("{}")).Object["spec"])
}

// If the server has discarded the owners of all fields, the parent of the number is not taken back either.
func TestDroppedParentOfReplicasWithoutOwnersKeepsItsValue(t *testing.T) {
	for _, sizeType := range []string{"granular", "atomic"} {
		t.Run(sizeType, func(t *testing.T) {
			a, pool := pools(t, sizeType)
			before, after := pool("{note: x, size: {count: 4}}"), pool("{note: later}")
			applied := must(t, a, before)
			as(t, "kubectl", before, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
			former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return []*manifest.Manifest{before}, nil
			}
			must(t, a.With(apply.Options{UID: applied.UID, Former: former}), after)
			assert.Equal(t, map[string]any{"note": "later", "size": map[string]any{"count": int64(4)}}, live(t, after).Object["spec"])
		})
	}
}

// An apply after a refused patch would remove the pods. So the error says what refused it.
func TestReplicasThatCannotBeGivenUpAreReported(t *testing.T) {
	for reason, want := range map[string]string{"Invalid": api.ReasonResourceInvalid, "Forbidden": api.ReasonResourceForbidden} {
		t.Run(reason, func(t *testing.T) {
			ns := namespace(t)
			a, _ := connect(t, owner)
			before, after := scalable(t, "Deployment", ns, "replicas: 3"), scalable(t, "Deployment", ns, "minReadySeconds: 5")
			must(t, a, before)
			deny(t, before, "{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [UPDATE]}",
				"object.metadata.managedFields.all(e, e.manager != 'kept-scale')", reason)

			_, predicted := a.With(apply.Options{}).Predict(t.Context(), after, release.Updating)
			_, err := a.With(apply.Options{}).Apply(t.Context(), after, release.Updating)
			require.Error(t, predicted)
			assert.Equal(t, err.Error(), predicted.Error(), "the preview reports the same")
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, want, failed.Reason)
			assert.Equal(t, "the number of replicas would be lost", failed.Cause)
			assert.Equal(t, []string{"spec.replicas"}, failed.Fields)
			assert.Equal(t, "exempt cluster-version-operator from ValidatingAdmissionPolicy '"+ns+"', which forbids to change metadata.managedFields, or set spec.replicas in the manifest", failed.Remedy)
			assert.Contains(t, failed.Error(), "owners stay")
			assert.EqualValues(t, 3, replicasOf(t, after))
		})
	}
}

// What OpenShift's operator wrote by update is given up too.
func TestDroppedReplicasOfAFormerManagerKeepTheirValue(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	before, after := scalable(t, "Deployment", ns, "replicas: 3"), scalable(t, "Deployment", ns, "minReadySeconds: 5")
	require.NoError(t, otherClient(t).Create(t.Context(), before.Object.DeepCopy(), client.FieldOwner("cluster-version-operator")))
	must(t, a.With(apply.Options{}), after)
	assert.EqualValues(t, 3, replicasOf(t, after))
	must(t, a.With(apply.Options{}), after)
	assert.EqualValues(t, 3, replicasOf(t, after))
}

// If the server has discarded the owners of all fields, the number of replicas is not taken back.
func TestDroppedReplicasWithoutOwnersKeepTheirValue(t *testing.T) {
	for _, foreign := range []bool{true, false} {
		t.Run(fmt.Sprint(foreign), func(t *testing.T) {
			ns := namespace(t)
			a, _ := connect(t, owner)
			before, after := scalable(t, "Deployment", ns, "replicas: 3"), scalable(t, "Deployment", ns, "minReadySeconds: 5")
			applied := must(t, a, before)
			as(t, "kubectl", before, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
			former := func(context.Context, manifest.ID) ([]*manifest.Manifest, error) {
				return []*manifest.Manifest{before}, nil
			}
			change := must(t, a.With(apply.Options{UID: applied.UID, Former: former, ReplicasForeign: foreign}), after)
			assert.Contains(t, change.Message, "took back its fields")
			assert.EqualValues(t, 3, replicasOf(t, after))
		})
	}
}

// deny creates a policy that denies updates of the objects in a namespace unless they match an expression. m is one of the objects.
func deny(t *testing.T, m *manifest.Manifest, rule, expression, reason string) {
	t.Helper()
	ns := m.Object.GetNamespace()
	for _, m := range []*manifest.Manifest{parse(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: `+ns+`}
spec:
  matchConstraints: {resourceRules: [`+rule+`]}
  validations:
  - {expression: "`+expression+`", message: "owners stay", reason: `+reason+`}
  - {expression: "!has(object.metadata.labels) || !('probe' in object.metadata.labels)"}
`), parse(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: `+ns+`}
spec: {policyName: `+ns+`, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+ns+`}}}}
`)} {
		require.NoError(t, otherClient(t).Create(t.Context(), m.Object))
		t.Cleanup(func() { _ = otherClient(t).Delete(context.Background(), m.Object) }) //nolint:usetesting // the test's context has ended
	}
	probe := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"probe":"x"}}}`))
	require.Eventually(t, func() bool { // admission needs a moment to read its configuration
		return otherClient(t).Patch(t.Context(), live(t, m), probe, client.DryRunAll) != nil
	}, eventually, tick)
}

// The server records no time for a scale, and no owner for a scale to 0.
func TestTheClientThatScalesAWorkloadIsKnown(t *testing.T) {
	deployments, _ := connect(t, owner)
	custom, pool := pools(t, "granular")
	for _, tt := range []struct {
		name  string
		by    *apply.Applier
		m     *manifest.Manifest
		edit  string
		field []string
	}{
		{"Deployment", deployments, scalable(t, "Deployment", namespace(t), "replicas: 3"), `{"spec":{"minReadySeconds":5}}`, []string{"spec", "replicas"}},
		{"custom resource", custom, pool("{size: {count: 3}}"), `{"spec":{"note":"x"}}`, []string{"spec", "size", "count"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must(t, tt.by, tt.m)
			as(t, "editor", tt.m, types.MergePatchType, tt.edit)
			scaler := func() (manager string) {
				manager, field := ownership.Scaler(live(t, tt.m).GetManagedFields())
				if manager != "" {
					assert.Equal(t, tt.field, field)
				}
				return manager
			}
			scale := func(n int) {
				t.Helper()
				body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
				require.NoError(t, otherClient(t).SubResource("scale").Patch(t.Context(), live(t, tt.m), client.RawPatch(types.MergePatchType, body),
					client.WithSubResourceBody(&autoscalingv1.Scale{}), client.FieldOwner("console")))
			}
			assert.Empty(t, scaler())
			scale(3)
			assert.Empty(t, scaler(), "the number is still ours")
			scale(5)
			assert.Equal(t, "console", scaler())
			assert.Equal(t, "editor", ownership.Writer(live(t, tt.m).GetManagedFields()))
			must(t, tt.by, tt.m)
			assert.Empty(t, scaler(), "the number is ours again")
			scale(0)
			assert.Empty(t, scaler())
		})
	}
}
