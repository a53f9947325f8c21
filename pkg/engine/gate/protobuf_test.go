package gate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/test/fixture"
)

// stored returns the CRD in a document as a server stores it.
func stored(t testing.TB, document []byte) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(document, &crd))
	crd.APIVersion, crd.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	crd.UID, crd.Generation, crd.ResourceVersion, crd.CreationTimestamp = types.UID("u-"+crd.Name), 3, "77", then
	crd.Finalizers, crd.DeletionTimestamp = []string{"customresourcecleanup.apiextensions.k8s.io"}, &then
	crd.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "m", Operation: metav1.ManagedFieldsOperationApply, Time: &then, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
	}}
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{
		AcceptedNames: crd.Spec.Names, StoredVersions: []string{"v1"},
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: "Conflict", Message: "of " + crd.Name, LastTransitionTime: then},
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
		},
	}
	return crd
}

// assertSame compares the object decoded from protobuf with the one decoded from JSON.
func assertSame(t *testing.T, object runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	var encoded bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme, scheme).Encode(object, &encoded))
	data, err := json.Marshal(object)
	require.NoError(t, err)
	assert.Equal(t, decode(t, data), decode(t, encoded.Bytes()))
}

// TestProtobufIsDecodedLikeJSON encodes the CRDs of both real releases, alone and as a list.
func TestProtobufIsDecodedLikeJSON(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			var files []string
			for _, folder := range []string{"manifests", "release-manifests"} {
				found, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads", version, folder, "*.yaml"))
				require.NoError(t, err)
				files = append(files, found...)
			}
			list := &apiextensionsv1.CustomResourceDefinitionList{
				TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"},
				ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c"},
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				for document := range bytes.SplitSeq(data, []byte("\n---")) {
					if !bytes.Contains(document, []byte("\nkind: CustomResourceDefinition\n")) {
						continue
					}
					crd := stored(t, document)
					assertSame(t, &crd)
					crd.TypeMeta = metav1.TypeMeta{} // as in a list of a server
					list.Items = append(list.Items, crd)
				}
			}
			require.Greater(t, len(list.Items), 200)
			assertSame(t, list)
		})
	}
}

// FuzzUnmarshal decodes arbitrary bytes. Where the full types of a CRD decode them too, both must agree.
//
//threat:status-objects
func FuzzUnmarshal(f *testing.F) {
	crd := stored(f, []byte(`{"metadata":{"name":"as.example.com"},"spec":{"group":"example.com","versions":[{"name":"v1"}]}}`))
	data, err := crd.Marshal()
	require.NoError(f, err)
	list, err := (&apiextensionsv1.CustomResourceDefinitionList{Items: []apiextensionsv1.CustomResourceDefinition{crd, crd}}).Marshal()
	require.NoError(f, err)
	for _, seed := range [][]byte{
		data, list, data[:len(data)-1],
		{0x1a, 0x02, 0x0a, 0x00},
		{0x1a, 0x04, 0x0a, 0x02, 0x1a, 0x00},
		{0x1b, 0x1c},
		{0x18, 0x01},
		{0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		{0x00},
		{0xff},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, full := &gate.CRD{}, &apiextensionsv1.CustomResourceDefinition{}
		err := got.Unmarshal(data)
		assert.Equal(t, err == nil, (&gate.APIService{}).Unmarshal(data) == nil)
		_ = (&gate.CRDList{}).Unmarshal(data)
		_ = (&gate.APIServiceList{}).Unmarshal(data)
		if err != nil || full.Unmarshal(data) != nil {
			return
		}
		assert.Equal(t, full.ObjectMeta, got.ObjectMeta)
		require.Len(t, got.Status.Conditions, len(full.Status.Conditions))
		for i, c := range full.Status.Conditions {
			assert.Equal(t, metav1.Condition{
				Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime,
				Reason: c.Reason, Message: c.Message,
			}, got.Status.Conditions[i])
		}
	})
}
