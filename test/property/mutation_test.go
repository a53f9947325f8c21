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

// mutationEnv names the mutation that a mutated engine makes; it makes none without.
const mutationEnv = "CVO_PROPERTY_MUTATION"

// mutation is a mistake made on purpose: a place of pkg/apply, and what goes wrong there.
type mutation struct {
	name string
	// file of pkg/apply, text that is in it exactly once, and what stands in its place.
	file, text, instead string
	// violates is a property that must be seen not to hold.
	violates string
}

func mutations() []mutation {
	const options = "options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force}"
	return []mutation{
		{
			"without force", "client.go", options,
			"if mutated(%q) { force = false }\n" + options, ownedFields,
		},
		{
			"labels left out", "body.go", "labels = maps.Clone(labels)",
			"labels = maps.Clone(labels); if mutated(%q) { labels = nil }", ownedFields,
		},
		{
			"another manager for another content", "client.go", "VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)\n\tcode := 0",
			"VersionedParams(otherManager(%q, &options, data), metav1.ParameterCodec).Body(data).Do(ctx)\n\tcode := 0", droppedFields,
		},
		{
			"tombstones that delete nothing", "apply.go", "case m.Tombstone() && mode == release.Initializing:",
			"case m.Tombstone() && (mode == release.Initializing || mutated(%q)):", presence,
		},
		{
			"create-only as everything else", "apply.go", "case m.CreateOnly():",
			"case m.CreateOnly() && !mutated(%q):", ownedFields,
		},
		{
			"empty lists as they are written", "body.go", "storedForm(m.GVK(), object)",
			"if !mutated(%q) { storedForm(m.GVK(), object) }", silence,
		},
	}
}

// helper is added to the mutated package.
const helper = `package apply

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

// TestMutationsAreCaught builds this test against an engine that can make mistakes, and has it find each of them.
func TestMutationsAreCaught(t *testing.T) {
	if os.Getenv(kubeconfigEnv) != "" {
		t.Skip("this is the test of a mutated engine")
	}
	prepare(t)
	binary := buildMutated(t)
	t.Run("it passes without a mutation", func(t *testing.T) {
		output, err := runMutated(t, binary, "none")
		require.NoError(t, err, output)
	})
	for _, m := range mutations() {
		t.Run("it catches "+m.name, func(t *testing.T) {
			output, err := runMutated(t, binary, m.name)
			require.Error(t, err, "nothing was found")
			assert.True(t, names(output, m.violates), "%q is not among what was found:\n%s", m.violates, output)
		})
	}
}

// names reports whether a line of the output says that a property does not hold.
func names(output, property string) bool {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(strings.TrimSpace(line), property+": ") {
			return true
		}
	}
	return false
}

// buildMutated builds the tests of this folder with all mutations in pkg/apply, each of which the environment turns on.
func buildMutated(t *testing.T) string {
	t.Helper()
	engineDir, err := filepath.Abs("../../pkg/apply")
	require.NoError(t, err)
	sources := map[string]string{"mutation.go": helper}
	for _, m := range mutations() {
		if sources[m.file] == "" {
			data, err := os.ReadFile(filepath.Join(engineDir, m.file))
			require.NoError(t, err)
			sources[m.file] = string(data)
		}
		require.Equal(t, 1, strings.Count(sources[m.file], m.text), "%s must have %q once: the mutation needs another place", m.file, m.text)
		sources[m.file] = strings.Replace(sources[m.file], m.text, fmt.Sprintf(m.instead, m.name), 1)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, text := range sources {
		file := filepath.Join(dir, name)
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

// runMutated plays the first seeds, which the engine as it is passes, against the API server of this test.
func runMutated(t *testing.T, binary, mutation string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestProperty$", "-test.failfast", "-property.seeds", "16",
		"-property.shrink=false", "-property.without", *without)
	cmd.Env = append(os.Environ(), kubeconfigEnv+"="+server.kubeconfig, mutationEnv+"="+mutation)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	require.NoError(t, ctx.Err())
	return output.String(), err
}
