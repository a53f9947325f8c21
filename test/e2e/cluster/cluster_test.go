package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestConfigurationCanBeParsed parses kind's configuration, and kubeadm's parts in it, with the code of their readers.
func TestConfigurationCanBeParsed(t *testing.T) {
	type kindConfig struct {
		Networking struct {
			DisableDefaultCNI bool `json:"disableDefaultCNI"`
		} `json:"networking"`
		KubeadmConfigPatches []string `json:"kubeadmConfigPatches"`
		Nodes                []struct {
			Role        string `json:"role"`
			ExtraMounts []struct {
				HostPath      string `json:"hostPath"`
				ContainerPath string `json:"containerPath"`
			} `json:"extraMounts"`
		} `json:"nodes"`
	}
	for _, test := range []struct {
		name    string
		options Options
		roles   string
	}{
		{"has workers", Options{Workers: 2}, "control-plane worker worker"},
		{"has no pod network", Options{Workers: 1, NoNetwork: true}, "control-plane worker"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var config kindConfig
			require.NoError(t, yaml.Unmarshal([]byte(configuration(test.options, "/tmp/policy.yaml")), &config))
			assert.Equal(t, test.options.NoNetwork, config.Networking.DisableDefaultCNI)
			var roles []string
			for _, node := range config.Nodes {
				roles = append(roles, node.Role)
			}
			assert.Equal(t, test.roles, strings.Join(roles, " "))
			require.Len(t, config.Nodes[0].ExtraMounts, 1)
			mount := config.Nodes[0].ExtraMounts[0]
			assert.Equal(t, "/tmp/policy.yaml", mount.HostPath)

			versions := map[string]bool{}
			for _, text := range config.KubeadmConfigPatches {
				var patch struct {
					Kind       string `json:"kind"`
					APIVersion string `json:"apiVersion"`
					APIServer  struct {
						ExtraArgs    any `json:"extraArgs"`
						ExtraVolumes []struct {
							MountPath string `json:"mountPath"`
						} `json:"extraVolumes"`
					} `json:"apiServer"`
				}
				require.NoError(t, yaml.UnmarshalStrict([]byte(text), &map[string]any{}), text)
				require.NoError(t, yaml.Unmarshal([]byte(text), &patch))
				if patch.Kind != "ClusterConfiguration" {
					continue
				}
				versions[patch.APIVersion] = true
				arguments := fmt.Sprint(patch.APIServer.ExtraArgs)
				mounted := map[string]bool{}
				for _, volume := range patch.APIServer.ExtraVolumes {
					mounted[volume.MountPath] = true
				}
				assert.Contains(t, arguments, mount.ContainerPath, "the API server reads the node's policy")
				assert.True(t, mounted[mount.ContainerPath], "the policy is mounted into the API server's pod")
				assert.True(t, mounted[filepath.Dir(auditLog)])
			}
			assert.Equal(t, map[string]bool{"kubeadm.k8s.io/v1beta3": true, "kubeadm.k8s.io/v1beta4": true}, versions)
		})
	}
}

func TestNumberOfParallelClustersIsChecked(t *testing.T) {
	for _, number := range []string{"0", "-1", "x"} {
		cmd := exec.CommandContext(t.Context(), "../prepare.sh")
		cmd.Env = append(os.Environ(), "CVO_E2E_PARALLEL="+number)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Equal(t, "e2e: CVO_E2E_PARALLEL is \""+number+"\": set it to the number of parallel clusters, at least 1\n", string(out))
	}
}

// TestAuditReadsAGrowingLog reads a log that grows between two reads and whose last line is incomplete. A script that reads a local file
// replaces docker.
func TestAuditReadsAGrowingLog(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	docker := "#!/bin/sh\n# exec NODE tail --bytes=+N FILE\nexec tail \"$4\" " + log + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	line := func(second int, name string) string {
		at := begin.Add(time.Duration(second) * time.Second).Format("2006-01-02T15:04:05.000000Z")
		return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"%d","stage":"ResponseComplete",`+
			`"requestURI":"/api","verb":"patch","user":{"username":"admin"},"objectRef":{"resource":"configmaps","name":%q},`+
			`"responseStatus":{"code":200},"requestReceivedTimestamp":%q,"stageTimestamp":%q}`+"\n", second, name, at, at)
	}
	c := &Cluster{ControlPlane: "node"}
	names := func(since time.Time) (all []string) {
		events, err := c.Audit(t.Context(), since)
		require.NoError(t, err)
		for _, e := range events {
			all = append(all, e.Object.Name)
		}
		return all
	}
	write := func(text string) { require.NoError(t, os.WriteFile(log, []byte(text), 0o600)) }

	whole, half := line(1, "a")+line(2, "b"), line(3, "c")
	write(whole + half[:40])
	assert.Equal(t, []string{"a", "b"}, names(begin))
	assert.Equal(t, []string{"b"}, names(begin.Add(2*time.Second)))
	write(whole + half + line(4, "d"))
	assert.Equal(t, []string{"a", "b", "c", "d"}, names(begin), "each request is returned once")
	assert.Equal(t, []string{"a", "b", "c", "d"}, names(begin))
}
