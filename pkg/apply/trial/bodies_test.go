package trial

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) (content map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &content))
	return content
}

func TestBodiesOfNewObjects(t *testing.T) {
	for _, tt := range []struct {
		name, group, kind, body, live string
		want                          []string
	}{
		{
			"have a generated name first", "apps", "Deployment", "{metadata: {name: a, labels: {k: v}}}", "{metadata: {name: a}}",
			[]string{"{metadata: {generateName: a-, labels: {k: v}}}", "{metadata: {name: a, labels: {k: v}}}"},
		},
		{
			"have their own name if it depends on the content", "apiregistration.k8s.io", "APIService", "{metadata: {name: v1.a}}", "{metadata: {name: v1.a}}",
			[]string{"{metadata: {name: v1.a}}"},
		},
		{
			"omit the live Service's addresses and ports", "", "Service",
			"{metadata: {name: a}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], healthCheckNodePort: 3, ports: [{port: 1, nodePort: 1}, {port: 2, nodePort: 2}]}}",
			"{metadata: {name: a}, spec: {clusterIP: 10.0.0.1, healthCheckNodePort: 3, ports: [{port: 9, nodePort: 1}]}}",
			[]string{
				"{metadata: {generateName: a-}, spec: {ports: [{port: 1}, {port: 2, nodePort: 2}]}}",
				"{metadata: {name: a}, spec: {ports: [{port: 1}, {port: 2, nodePort: 2}]}}",
			},
		},
		{
			"keep that a Service has no address", "", "Service", "{metadata: {name: a}, spec: {clusterIP: None}}", "{metadata: {name: a}, spec: {clusterIP: None}}",
			[]string{"{metadata: {generateName: a-}, spec: {clusterIP: None}}", "{metadata: {name: a}, spec: {clusterIP: None}}"},
		},
	} {
		t.Run("they "+tt.name, func(t *testing.T) {
			body := object(t, tt.body)
			var want []map[string]any
			for _, text := range tt.want {
				want = append(want, object(t, text))
			}
			got := bodies(schema.GroupKind{Group: tt.group, Kind: tt.kind}, body, &unstructured.Unstructured{Object: object(t, tt.live)})
			assert.Equal(t, want, got)
			assert.Equal(t, object(t, tt.body), body, "the body of the manifest stays")
		})
	}
}
