package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// play plays a demo without a terminal until it ends or writes the text last.
func play(t *testing.T, o options, in, last string) string {
	t.Helper()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watched{until: last, found: cancel}
	o.noTTY, o.delay = true, 200*time.Millisecond
	require.NoError(t, run(ctx, o, strings.NewReader(in), out), out)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left, "no files are left")
	t.Log(out)
	return out.String()
}

// watched is a buffer that reports when it receives a given text.
type watched struct {
	bytes.Buffer
	until string
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.until != "" && strings.Contains(w.String(), w.until) {
		w.found()
	}
	return n, err
}

func TestDemoInstallsAndUpdates(t *testing.T) {
	cvo := buildCVO(t)
	t.Run("installs and updates", func(t *testing.T) {
		out := play(t, options{cvo: cvo}, "", "")
		for _, text := range []string{
			"installed 1.0.0 in ", "updated 1.0.0 to 1.1.0 in ", "signature verified",
			"control plane at 1.0.0, nodes handed over to machine-config", "control plane at 1.1.0, nodes handed over to machine-config",
			"$ cvo release sign ", "$ kubectl patch clusterversion version ", "Progressing=False: Cluster version is 1.1.0",
			"\n runlevel ", "\n 50 ", "\n total ", "\n writes ", "example-autoscaler",
		} {
			assert.Contains(t, out, text)
		}
		assert.NotContains(t, out, "stuck")
		assert.NotContains(t, out, "\x1b[")
	})
	t.Run("shows an operator that fails and is repaired", func(t *testing.T) {
		out := play(t, options{cvo: cvo, fail: "example-dns", keep: true}, "\n", "Press Ctrl-C to end it.\n")
		failed, repaired, ok := strings.Cut(out, "example-dns is repaired")
		require.True(t, ok)
		for _, text := range []string{
			"installed 1.0.0 in ", "! Failing=True: ", "stuck", "✗ not updated to 1.1.0",
			"Failing: Cluster operator example-dns is not available", "The update stops at runlevel 30", "kubectl get clusteroperator example-dns",
			"export KUBECONFIG=",
		} {
			assert.Contains(t, failed, text)
		}
		assert.NotContains(t, failed, "updated 1.0.0 to 1.1.0")
		assert.NotContains(t, failed, "control plane at 1.1.0")
		assert.Contains(t, repaired, "updated 1.0.0 to 1.1.0 in ")
		assert.Contains(t, repaired, "control plane at 1.1.0, nodes handed over")
	})
}

func TestEmptyDemoKeepsAControlPlaneAndARegistry(t *testing.T) {
	cvo := filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(cvo, nil, 0o600))
	out := play(t, options{cvo: cvo, empty: true}, "", "then cvo start")
	assert.Regexp(t, `export KUBECONFIG=/\S+`, out)
	assert.Contains(t, out, "cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --no-operator ", "an operator in the release would never run here")
	assert.Regexp(t, `--to-image 127\.0\.0\.1:\d+/platform/release:1\.0\.0`, out)
}

func TestDemoRejectsUnknownComponents(t *testing.T) {
	cvo := filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(cvo, nil, 0o600))
	_, err := newDemo(options{cvo: cvo, fail: "example-dsn"})
	require.ErrorContains(t, err, `--fail "example-dsn": this component has no operator; choose one of: example-autoscaler, `)
	_, err = newDemo(options{cvo: cvo + "-missing"})
	require.ErrorContains(t, err, "make build")
}
