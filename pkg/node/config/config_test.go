package config_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
)

// role returns a MachineConfig with a role label and an Ignition config of version 3.5.0 with these sections.
func role(role, name, sections string) *mcfgv1.MachineConfig {
	raw := `{"ignition": {"version": "3.5.0"}`
	if sections != "" {
		raw += ", " + sections
	}
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.MachineConfigRoleLabelKey: role}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw + "}")}},
	}
}

func worker(name, sections string) *mcfgv1.MachineConfig { return role("worker", name, sections) }

// spec returns a MachineConfig of workers without an Ignition config.
func spec(name string, spec mcfgv1.MachineConfigSpec) *mcfgv1.MachineConfig {
	mc := worker(name, "")
	mc.Spec = spec
	return mc
}

// generated marks a MachineConfig as made by a controller.
func generated(mc *mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	mc.Annotations = map[string]string{api.GeneratedByAnnotation: "v1"}
	return mc
}

// files returns the storage section with these elements of its list of files.
func files(elements ...string) string {
	return `"storage": {"files": [` + strings.Join(elements, ", ") + `]}`
}

// file returns an element of the list of files with text as data.
func file(path, text string) string {
	return fmt.Sprintf(`{"path": %q, "contents": {"source": "data:;base64,%s"}}`, path, base64.StdEncoding.EncodeToString([]byte(text)))
}

// zipped returns an element of the list of files with compressed text as data.
func zipped(t testing.TB, path, text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return fmt.Sprintf(`{"path": %q, "contents": {"compression": "gzip", "source": "data:;base64,%s"}}`, path, base64.StdEncoding.EncodeToString(out.Bytes()))
}

func units(elements ...string) string {
	return `"systemd": {"units": [` + strings.Join(elements, ", ") + `]}`
}

func keys(list ...string) string {
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return `"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ` + string(encoded) + `}]}`
}

func render(t testing.TB, configs ...*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	rendered, err := config.Render("infra", configs, "registry.example/os@sha256:release")
	require.NoError(t, err)
	return rendered
}

func content(t testing.TB, configs ...*mcfgv1.MachineConfig) config.Content {
	decoded, err := config.Decode(render(t, configs...))
	require.NoError(t, err)
	return decoded
}
