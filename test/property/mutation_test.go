package property

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutationEnv is the environment variable with the active mutation of a mutated engine. If it is empty, no mutation is active.
const mutationEnv = "CVO_PROPERTY_MUTATION"

// mutation is a deliberate error in pkg/apply.
type mutation struct {
	name string
	// file is the file below pkg/apply. text occurs exactly once in it and is replaced by instead.
	file, text, instead string
	// violates is the property that must fail.
	violates string
}

func mutations() []mutation {
	const options = "options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force}"
	return []mutation{
		{
			"without force", "request/client.go", options,
			"if mutated(%q) { force = false }\n" + options, ownedFields,
		},
		{
			"labels omitted", "body/body.go", "labels = maps.Clone(labels)",
			"labels = maps.Clone(labels); if mutated(%q) { labels = nil }", ownedFields,
		},
		{
			"another manager for other content", "request/client.go", "VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)\n\tcode := 0",
			"VersionedParams(otherManager(%q, &options, data), metav1.ParameterCodec).Body(data).Do(ctx)\n\tcode := 0", droppedFields,
		},
		{
			"tombstones that delete nothing", "apply.go", "case m.Tombstone() && mode == release.Initializing:",
			"case m.Tombstone() && (mode == release.Initializing || mutated(%q)):", presence,
		},
		{
			"create-only like other objects", "apply.go", "case m.CreateOnly():",
			"case m.CreateOnly() && !mutated(%q):", ownedFields,
		},
		{
			"empty lists kept", "body/body.go", "storedForm(m.GVK(), object)",
			"if !mutated(%q) { storedForm(m.GVK(), object) }", silence,
		},
	}
}

// helper is added to each mutated package.
const helper = `package %s

import (
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func mutated(name string) bool { return os.Getenv("` + mutationEnv + `") == name }

func otherManager(name string, options *metav1.PatchOptions, data []byte) *metav1.PatchOptions {
	if mutated(name) {
		options.FieldManager += strconv.Itoa(len(data))
	}
	return options
}
`

// TestMutationsAreCaught builds this test against an engine with optional mutations. The test must find each mutation.
func TestMutationsAreCaught(t *testing.T) {
	if os.Getenv(kubeconfigEnv) != "" {
		t.Skip("this test runs against a mutated engine")
	}
	prepare(t)
	binary := buildMutated(t)
	t.Run("passes without a mutation", func(t *testing.T) {
		output, err := runMutated(t, binary, "none")
		require.NoError(t, err, output)
	})
	for _, m := range mutations() {
		t.Run("catches "+m.name, func(t *testing.T) {
			output, err := runMutated(t, binary, m.name)
			require.Error(t, err, "the mutated engine violates no property")
			assert.True(t, names(output, m.violates), "property %q is not violated:\n%s", m.violates, output)
		})
	}
}

// names reports whether a line of the output names a violated property.
func names(output, property string) bool {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(strings.TrimSpace(line), property+": ") {
			return true
		}
	}
	return false
}

// buildMutated builds the tests of this folder with all mutations in pkg/apply. The environment enables them one by one.
func buildMutated(t *testing.T) string {
	t.Helper()
	engineDir, err := filepath.Abs("../../pkg/apply")
	require.NoError(t, err)
	sources := map[string]string{}
	for file, name := range map[string]string{"mutation.go": "apply", "body/mutation.go": "body", "request/mutation.go": "request"} {
		sources[file] = strings.Replace(helper, "%s", name, 1)
	}
	for _, m := range mutations() {
		if sources[m.file] == "" {
			data, err := os.ReadFile(filepath.Join(engineDir, m.file))
			require.NoError(t, err)
			sources[m.file] = string(data)
		}
		require.Equal(t, 1, strings.Count(sources[m.file], m.text), "%s must contain %q once: move the mutation", m.file, m.text)
		sources[m.file] = strings.Replace(sources[m.file], m.text, fmt.Sprintf(m.instead, m.name), 1)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, text := range sources {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		replace[filepath.Join(engineDir, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutated.test")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlayFile, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(output))
	return binary
}

// runMutated plays the first seeds, which the unmodified engine passes, against the API server of this test.
func runMutated(t *testing.T, binary, mutation string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestHistoriesReachTheRelease$", "-test.failfast", "-property.seeds", "16",
		"-property.shrink=false", "-property.without", *without)
	cmd.Env = append(os.Environ(), kubeconfigEnv+"="+server.kubeconfig, mutationEnv+"="+mutation)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	require.NoError(t, ctx.Err())
	return output.String(), err
}
