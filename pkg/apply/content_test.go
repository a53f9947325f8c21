package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestContentChangesWithTheSentObject(t *testing.T) {
	parse := func(text string) *manifest.Manifest {
		list, err := manifest.Parse("0000_10_a_01.yaml", []byte(text), manifest.Limits{})
		require.NoError(t, err)
		return list[0]
	}
	const (
		configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: v}}"
		operator  = "{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: a}, status: {versions: [{name: operator, version: '1'}]}}"
		proxied   = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: a, annotations: {config.openshift.io/inject-proxy: c}},
			spec: {template: {spec: {containers: [{name: c, image: i}]}}}}`
		plain = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: a}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}"
	)
	a := apply.New(&request.Client{}, nil, owner)
	proxy := a.WithValues(inject.Values{Proxy: inject.Proxy{HTTP: "http://proxy"}})
	other := apply.New(&request.Client{}, nil, body.Owner{Name: owner.Name, UID: "other"})
	for _, tt := range []struct {
		name          string
		by, than      *apply.Applier
		text, another string
		same          bool
	}{
		{name: "is equal for an equal manifest", by: a, than: a, text: configMap, another: configMap, same: true},
		{name: "changes with the manifest", by: a, than: a, text: configMap, another: "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: a}, data: {k: w}}"},
		{name: "changes with the owner", by: a, than: other, text: configMap, another: configMap},
		{name: "omits the status, which is not sent", by: a, than: a, text: operator, another: "{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: a}}", same: true},
		{name: "changes with the injection", by: a, than: proxy, text: proxied, another: proxied},
		{name: "ignores unused injections", by: a, than: proxy, text: plain, another: plain, same: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one, err := tt.by.Content(parse(tt.text))
			require.NoError(t, err)
			two, err := tt.than.Content(parse(tt.another))
			require.NoError(t, err)
			assert.Equal(t, tt.same, one == two)
		})
	}

	_, err := proxy.Content(parse(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: a, annotations: {config.openshift.io/inject-proxy: missing}},
		spec: {template: {spec: {containers: [{name: c}]}}}}`))
	require.ErrorContains(t, err, `requested injection for non-existent container: "missing"`)
}
