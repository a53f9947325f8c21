package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestUnservedCustomResourceIsReported lets an administrator, who installed the CRD of a custom resource of the release, stop serving its
// version. The operator and its successor must report the object, and repair it once the version is served again.
func TestUnservedCustomResourceIsReported(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	definition := filepath.Join(t.TempDir(), "definition.yaml")
	require.NoError(t, os.WriteFile(definition, []byte(strings.TrimSuffix(graduating, "---\napiVersion: example.com/")), 0o600))
	l.create(definition)
	l.own = l.special("4.2.0", fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(`
apiVersion: example.com/v1beta1
kind: Widget
metadata: {namespace: lab, name: w, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec: {port: 80}
`)}})
	l.install("4.2.0")
	serve := func(served string) {
		t.Helper()
		crd := l.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com")
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/versions/0/served", "value": `+served+`}]`))
		require.NoError(t, l.client.Patch(t.Context(), crd, patch))
	}

	serve("false")
	begin := time.Now()
	cv := l.await("the object to be reported", time.Minute, says(api.Failing, "True|"+api.ReasonResourceTypeMissing+"|"))
	t.Logf("reported after %s: %s", time.Since(begin), condition(cv, api.Failing))
	assert.Contains(t, condition(cv, api.Failing), `Widget.example.com lab/w`)
	assert.Contains(t, condition(cv, api.Failing), `in example.com/v1beta1, only in v1`)
	edit := func(port string) {
		t.Helper()
		require.NoError(t, l.client.Patch(t.Context(), l.widget(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"port":`+port+`}}`))))
	}
	edit("81")
	l.cvo.end(t)
	cv = l.get()
	for i, c := range cv.Status.Conditions {
		if c.Type == api.Failing {
			cv.Status.Conditions[i].Status = configv1.ConditionFalse // so that only the next operator can report the object
		}
	}
	require.NoError(t, l.client.Status().Update(t.Context(), cv))
	l.succeed()
	l.await("another operator to report it", time.Minute, says(api.Failing, "True|"+api.ReasonResourceTypeMissing+"|"))

	serve("true")
	begin = time.Now()
	l.await("the object to be applied", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return at("4.2.0")(cv) && says(api.Failing, "False|")(cv)
	})
	t.Logf("applied after %s", time.Since(begin))
	isOurs := func() bool {
		port, _, _ := unstructured.NestedInt64(l.widget().Object, "spec", "port")
		return port == 80
	}
	assert.True(t, isOurs())
	edit("82")
	require.Eventually(t, isOurs, time.Minute, 50*time.Millisecond, "the operator watches the object again")
}
