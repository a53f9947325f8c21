package gate_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/release"
)

// decode parses JSON like a client whose scheme has the reduced types.
func decode(t *testing.T, data []byte) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	gate.AddToScheme(scheme)
	obj, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, nil)
	require.NoError(t, err)
	return obj
}

// realCRD returns the largest CRD of the API module in a server's format, with these conditions.
func realCRD(t *testing.T, conditions ...any) []byte {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(dir)), "config/v1/zz_generated.crd-manifests",
		"0000_10_config-operator_01_infrastructures-Default.crd.yaml")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, yaml.Unmarshal(data, &object))
	metadata := object["metadata"].(map[string]any)
	metadata["uid"], metadata["generation"], metadata["resourceVersion"] = "uid-1", 3, "77"
	object["status"] = map[string]any{
		"acceptedNames": map[string]any{"kind": "Infrastructure", "plural": "infrastructures"},
		"conditions":    conditions, "storedVersions": []any{"v1"},
	}
	data, err = json.Marshal(object)
	require.NoError(t, err)
	return data
}

func TestRealCRDIsDecoded(t *testing.T) {
	obj := decode(t, realCRD(t,
		map[string]any{"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": "2026-05-01T12:00:00Z"},
		map[string]any{"type": "Established", "status": "True", "lastTransitionTime": nil},
	))
	crd, ok := obj.(*gate.CRD)
	require.True(t, ok, "%T", obj)
	assert.Equal(t, "infrastructures.config.openshift.io", crd.Name)
	assert.Equal(t, "CustomResourceDefinition", crd.Kind)
	assert.EqualValues(t, 3, crd.Generation)
	assert.Equal(t, "77", crd.ResourceVersion)
	require.Len(t, crd.Status.Conditions, 2)
	assert.True(t, then.Equal(&crd.Status.Conditions[0].LastTransitionTime))
	data, err := json.Marshal(crd)
	require.NoError(t, err)
	assert.NotContains(t, string(data), "openAPIV3Schema")

	m := of("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd.Name)
	assert.Equal(t, settled, gate.Check(crd, gate.Want{Manifest: m, Mode: release.Updating, UID: "uid-1", Generation: 3}))
}

func TestListsAreDecoded(t *testing.T) {
	crds := decode(t, []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinitionList",
		"metadata":{"resourceVersion":"5","continue":"c"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`))
	require.IsType(t, &gate.CRDList{}, crds)
	assert.Equal(t, "5", crds.(*gate.CRDList).ResourceVersion)
	assert.Equal(t, "b", crds.(*gate.CRDList).Items[1].Name)

	services := decode(t, []byte(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIServiceList","metadata":{},
		"items":[{"metadata":{"name":"v1.a"},"spec":{"caBundle":"xx"},"status":{"conditions":[{"type":"Available","status":"True"}]}}]}`))
	require.IsType(t, &gate.APIServiceList{}, services)
	assert.Equal(t, metav1.ConditionTrue, services.(*gate.APIServiceList).Items[0].Status.Conditions[0].Status)

	assert.IsType(t, &gate.APIService{}, decode(t, []byte(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService"}`)))
}

func conditioned() gate.Conditioned {
	c := gate.Conditioned{TypeMeta: metav1.TypeMeta{Kind: "K"}, ObjectMeta: seen("1", 1)}
	c.Labels = map[string]string{"a": "1"}
	c.Finalizers = []string{"f"}
	c.Status.Conditions = []metav1.Condition{{Type: "Established", Message: "before", LastTransitionTime: then}}
	return c
}

func TestDeepCopySharesNothing(t *testing.T) {
	remaining := int64(4)
	for _, tt := range []struct {
		obj  runtime.Object
		item func(runtime.Object) *gate.Conditioned
	}{
		{&gate.CRD{Conditioned: conditioned()}, func(o runtime.Object) *gate.Conditioned { return &o.(*gate.CRD).Conditioned }},
		{&gate.APIService{Conditioned: conditioned()}, func(o runtime.Object) *gate.Conditioned { return &o.(*gate.APIService).Conditioned }},
		{
			&gate.CRDList{ListMeta: metav1.ListMeta{RemainingItemCount: &remaining}, Items: []gate.CRD{{Conditioned: conditioned()}}},
			func(o runtime.Object) *gate.Conditioned { return &o.(*gate.CRDList).Items[0].Conditioned },
		},
		{
			&gate.APIServiceList{ListMeta: metav1.ListMeta{Continue: "c"}, Items: []gate.APIService{{Conditioned: conditioned()}}},
			func(o runtime.Object) *gate.Conditioned { return &o.(*gate.APIServiceList).Items[0].Conditioned },
		},
	} {
		clone := tt.obj.DeepCopyObject()
		assert.Equal(t, tt.obj, clone)
		changed := tt.item(clone)
		changed.Labels["a"] = "2"
		changed.Finalizers[0] = "g"
		changed.Status.Conditions[0].Message = "after"
		assert.Equal(t, conditioned(), *tt.item(tt.obj), "%T", tt.obj)
	}
	list := &gate.CRDList{ListMeta: metav1.ListMeta{RemainingItemCount: &remaining}}
	*list.DeepCopyObject().(*gate.CRDList).RemainingItemCount = 9
	assert.EqualValues(t, 4, remaining)
}

func TestCRDAndAPIServiceSettleByTheirConditions(t *testing.T) {
	const crdID, serviceID = "CustomResourceDefinition.apiextensions.k8s.io b", "APIService.apiregistration.k8s.io b"
	crd := of("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "b")
	service := of("apiregistration.k8s.io/v1", "APIService", "", "b")
	says := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: "because", LastTransitionTime: then}
	}
	since := func(v gate.Verdict) gate.Verdict { v.Since = then.Time; return v }
	for _, tt := range []struct {
		name         string
		conditions   []metav1.Condition
		crd, service gate.Verdict
	}{
		{"waits without conditions", nil, waits("NotEstablished", crdID+" is not Established yet"), waits("NotAvailable", serviceID+" is not Available yet")},
		{
			"settles",
			[]metav1.Condition{says("NamesAccepted", "True"), says("Established", "True"), says("Available", "True")},
			settled, settled,
		},
		{
			"waits while the conditions are false",
			[]metav1.Condition{says("Established", "False"), says("Available", "False")},
			since(waits("NotEstablished", crdID+" is not Established: because")), since(waits("NotAvailable", serviceID+" is not Available: because")),
		},
		{
			"waits while the conditions are unknown",
			[]metav1.Condition{says("Established", "Unknown"), says("Available", "Unknown")},
			since(waits("NotEstablished", crdID+" is not Established: because")), since(waits("NotAvailable", serviceID+" is not Available: because")),
		},
		{
			"reads only its own condition",
			[]metav1.Condition{says("Other", "True"), says("Established", "False"), says("Available", "True")},
			since(waits("NotEstablished", crdID+" is not Established: because")), settled,
		},
		{
			"fails if another CRD has the names",
			[]metav1.Condition{says("Established", "True"), says("NamesAccepted", "False"), says("Available", "True")},
			fails("NamesNotAccepted", "the API server rejects the names of "+crdID+": because"), settled,
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			status := gate.ConditionedStatus{Conditions: tt.conditions}
			got := gate.Check(&gate.CRD{Conditioned: gate.Conditioned{Status: status}}, gate.Want{Manifest: crd, Mode: release.Updating})
			assert.Equal(t, tt.crd, got)
			got = gate.Check(&gate.APIService{Conditioned: gate.Conditioned{Status: status}}, gate.Want{Manifest: service, Mode: release.Updating})
			assert.Equal(t, tt.service, got)
		})
	}
}
