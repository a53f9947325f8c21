package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

func TestLoosensComparesValues(t *testing.T) {
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`
spec:
  template:
    spec:
      hostPID: true
      hostIPC: false
      securityContext: {runAsNonRoot: false, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}, sysctls: []}
      volumes:
      - {name: root, hostPath: {path: /}}
      - {name: 'a"]b', hostPath: {path: /}}
      - {name: none, emptyDir: {}}
      containers:
      - name: x
        ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, protocol: UDP}]
        securityContext: {privileged: true, allowPrivilegeEscalation: false, runAsUser: 0, procMount: Default, capabilities: {add: [NET_ADMIN]}}
      - {name: z, securityContext: {privileged: false, seccompProfile: {type: Unconfined}, runAsNonRoot: true}}
`), &object))
	for path, want := range map[string]bool{
		`hostPID`:                          true,
		`hostIPC`:                          false,
		`hostNetwork`:                      false,
		`securityContext.runAsNonRoot`:     true,
		`securityContext.runAsUser`:        false,
		`securityContext.seccompProfile`:   false,
		`securityContext.sysctls`:          false,
		`volumes[name="root"].hostPath`:    true,
		`volumes[name="a\"]b"].hostPath`:   true,
		`volumes[name="none"].hostPath`:    false,
		`volumes[name="missing"].hostPath`: false,
		`containers[name="x"].ports[containerPort=80,protocol="TCP"].hostPort`: true,
		`containers[name="x"].ports[containerPort=81,protocol="UDP"].hostPort`: false,
		`containers[name="x"].securityContext.privileged`:                      true,
		`containers[name="x"].securityContext.allowPrivilegeEscalation`:        false,
		`containers[name="x"].securityContext.runAsUser`:                       true,
		`containers[name="x"].securityContext.procMount`:                       false,
		`containers[name="x"].securityContext.capabilities.add`:                true,
		`containers[name="z"].securityContext.privileged`:                      false,
		`containers[name="z"].securityContext.seccompProfile`:                  true,
		`containers[name="z"].securityContext.runAsNonRoot`:                    false,
		`containers[name="z`: false,
	} {
		assert.Equal(t, want, ownership.Loosens(object, "spec.template.spec."+path), path)
	}
}
