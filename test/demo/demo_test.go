package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildCVO builds the operator, as make does before it starts the demo.
func buildCVO(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cvo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../../cmd/cvo").CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

// TestDemo plays the demo without a terminal, from start to end.
func TestDemo(t *testing.T) {
	cvo := buildCVO(t)
	for _, test := range []struct {
		name     string
		fail     string
		contains []string
		lacks    []string
	}{
		{
			name: "shows an install and an update",
			contains: []string{
				"installed 1.0.0 in ", "updated 1.0.0 to 1.1.0 in ", "signature verified",
				"control plane at 1.0.0, nodes handed over to machine-config", "control plane at 1.1.0, nodes handed over to machine-config",
				"$ cvo release sign ", "$ kubectl patch clusterversion version ", "Progressing=False: Cluster version is 1.1.0",
				"\n runlevel ", "\n 50 ", "\n total ", "\n writes ", "example-autoscaler",
			},
			lacks: []string{"stuck", "\x1b["},
		},
		{
			name: "shows an operator that fails",
			fail: "example-dns",
			contains: []string{
				"installed 1.0.0 in ", "! Failing=True: ", "stuck", "✗ not updated to 1.1.0",
				"Failing: Cluster operator example-dns is not available", "The update stops at runlevel 30", "kubectl get clusteroperator example-dns",
			},
			lacks: []string{"updated 1.0.0 to 1.1.0 in ", "control plane at 1.1.0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			var out bytes.Buffer
			err := run(t.Context(), options{noTTY: true, cvo: cvo, fail: test.fail, delay: 200 * time.Millisecond}, &out)
			require.NoError(t, err, out.String())
			for _, text := range test.contains {
				assert.Contains(t, out.String(), text)
			}
			for _, text := range test.lacks {
				assert.NotContains(t, out.String(), text)
			}
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			assert.Empty(t, left, "files left behind")
			t.Log(out.String())
		})
	}
}

func TestNewDemoRefuses(t *testing.T) {
	cvo := filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(cvo, nil, 0o600))
	_, err := newDemo(options{cvo: cvo, fail: "example-dsn"})
	require.ErrorContains(t, err, `--fail "example-dsn": no component of that name has an operator; these have: example-autoscaler, `)
	_, err = newDemo(options{cvo: cvo + "-missing"})
	require.ErrorContains(t, err, "make build")
}
