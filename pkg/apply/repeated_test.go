package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestLastOfRepeatedEntriesWins(t *testing.T) {
	ns := namespace(t)
	of := func(container, pod string) *manifest.Manifest {
		return parse(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: "+ns+", name: a}\n"+workload("", container, pod))
	}
	const pod, container = "spec.template.spec.", "spec.template.spec.containers.0."
	for _, tt := range []struct {
		name    string
		m       *manifest.Manifest
		at      string
		want    any
		dropped []string
	}{
		{
			"environment variables", of("env: [{name: A, value: '1'}, {name: B, value: b}, {name: A, value: '2'}, {name: A, value: '3'}], ", ""), container + "env",
			[]any{map[string]any{"name": "B", "value": "b"}, map[string]any{"name": "A", "value": "3"}},
			[]string{`.spec.template.spec.containers[name="c"].env[name="A"]`},
		},
		{
			"ports, one of them with the default protocol", of("ports: [{containerPort: 80, name: x}, {containerPort: 80, protocol: UDP, name: u}, {containerPort: 80, protocol: TCP, name: z}], ", ""), container + "ports",
			[]any{
				map[string]any{"containerPort": int64(80), "protocol": "UDP", "name": "u"},
				map[string]any{"containerPort": int64(80), "protocol": "TCP", "name": "z"},
			},
			[]string{`.spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]`},
		},
		{
			"volumes and mounts at once", of("volumeMounts: [{mountPath: /a, name: v}, {mountPath: /a, name: v, readOnly: true}], ", "volumes: [{name: v}, {name: v, configMap: {name: m}}], "), container + "volumeMounts",
			[]any{map[string]any{"mountPath": "/a", "name": "v", "readOnly": true}},
			[]string{`.spec.template.spec.containers[name="c"].volumeMounts[mountPath="/a"]`, `.spec.template.spec.volumes[name="v"]`},
		},
		{
			"pull secrets", of("", "imagePullSecrets: [{name: s}, {name: s}, {name: s}, {name: t}], "), pod + "imagePullSecrets",
			[]any{map[string]any{"name": "s"}, map[string]any{"name": "t"}},
			[]string{`.spec.template.spec.imagePullSecrets[name="s"]`},
		},
		{
			"finalizers, which are a set", parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: "+ns+", name: a, finalizers: [a.b/c, x.y/z, a.b/c]}"), "metadata.finalizers",
			[]any{"x.y/z", "a.b/c"},
			[]string{`.metadata.finalizers[="a.b/c"]`},
		},
		{
			"ports of a Service", parse(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: "+ns+", name: a}\nspec: {clusterIP: None, ports: [{port: 80, targetPort: 1}, {port: 80, targetPort: 2}]}"), "spec.ports",
			[]any{map[string]any{"port": int64(80), "protocol": "TCP", "targetPort": int64(2)}},
			[]string{`.spec.ports[port=80,protocol="TCP"]`},
		},
		{
			"secrets of a ServiceAccount, and an unknown field", parse(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: "+ns+", name: a}\nsecrets: [{name: s}, {name: s}]\nfoo: 1"), "secrets",
			[]any{map[string]any{"name": "s"}},
			[]string{".foo", `.secrets[name="s"]`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			tt.m.Object.SetName(slug(tt.name))
			before := tt.m.Object.DeepCopy()
			got := must(t, a, tt.m)
			assert.Equal(t, apply.Created, got.Action)
			assert.ElementsMatch(t, tt.dropped, got.Dropped)
			assert.LessOrEqual(t, len(record.drain()), 3)
			assert.Equal(t, before, tt.m.Object, "the manifest must not change")
			assert.Equal(t, tt.want, at(live(t, tt.m).Object, tt.at))
			assert.Equal(t, got.ResourceVersion, must(t, a, tt.m).ResourceVersion)
		})
	}
}

func TestMissingRepeatedEntriesAreErrors(t *testing.T) {
	a := answering(t, 500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,
		"message":"failed to create typed patch object (/a; example.com/v1, Kind=Thing): .spec.x: duplicate entries for key [name=\"a\"]"}`)
	_, err := a.Apply(t.Context(), thing(t, ""), release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
}
