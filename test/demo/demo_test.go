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

// buildPrograms builds the operator and the node stage, as make does before it starts the demo.
func buildPrograms(t *testing.T) options {
	t.Helper()
	folder := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/", "../../cmd/cvo", "../../cmd/cvo-node").CombinedOutput()
	require.NoError(t, err, string(out))
	return options{cvo: filepath.Join(folder, "cvo"), cvoNode: filepath.Join(folder, "cvo-node")}
}

// emptyPrograms returns files in place of the programs, for demos that run neither.
func emptyPrograms(t *testing.T) options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cvo")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	return options{cvo: file, cvoNode: file}
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
	programs := buildPrograms(t)
	t.Run("installs and updates", func(t *testing.T) {
		out := play(t, programs, "", "")
		for _, text := range []string{
			"installed 1.0.0 in ", "updated 1.0.0 to 1.1.0 in ", "signature verified",
			"control plane at 1.0.0, nodes handed over to machine-config", "control plane at 1.1.0, nodes handed over to machine-config",
			"$ cvo release sign ", "$ kubectl patch clusterversion version ", "Progressing=False: Cluster version is 1.1.0",
			"\n runlevel ", "\n 50 ", "\n total ", "\n writes ", "example-autoscaler",
			"node control-0: cordoned, draining", "node worker-6: cordoned, draining", "node worker-6: uncordoned; ", "7 of 7 updated in pool worker",
		} {
			assert.Contains(t, out, text)
		}
		assert.Equal(t, 2, strings.Count(out, "\n   10 nodes updated after "), "by the install and by the update")
		assert.NotContains(t, out, "stuck")
		assert.NotContains(t, out, "\x1b[")
	})
	t.Run("shows an operator that fails and is repaired", func(t *testing.T) {
		programs.fail, programs.keep = "example-dns", true
		out := play(t, programs, "\n", "Press Ctrl-C to end it.\n")
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
		assert.Equal(t, 2, strings.Count(repaired, "\n   10 nodes updated after "))
	})
}

func TestEmptyDemoKeepsAControlPlaneAndARegistry(t *testing.T) {
	o := emptyPrograms(t)
	o.empty = true
	out := play(t, o, "", "then cvo start")
	assert.Regexp(t, `export KUBECONFIG=/\S+`, out)
	assert.Contains(t, out, "cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --no-operator ", "an operator in the release would never run here")
	assert.Regexp(t, `--to-image 127\.0\.0\.1:\d+/platform/release:1\.0\.0`, out)
}

func TestDemoRejectsUnknownComponents(t *testing.T) {
	o := emptyPrograms(t)
	o.fail = "example-dsn"
	_, err := newDemo(o)
	require.ErrorContains(t, err, `--fail "example-dsn": this component has no operator; choose one of: example-autoscaler, `)
	o.cvo += "-missing"
	_, err = newDemo(o)
	require.ErrorContains(t, err, "make build")
}
