package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBundleIsFoundInTheArguments(t *testing.T) {
	tests := []struct {
		name, file string
		args       []string
		isProcess  bool
	}{
		{name: "finds a bundle behind global flags", args: []string{"--root", "/run/create", "--log=/x", "--systemd-cgroup", "create", "--bundle", "/b", "id"}, file: "/b/config.json"},
		{name: "reads short flags", args: []string{"run", "-b=/b", "id"}, file: "/b/config.json"},
		{name: "uses the working folder as the bundle", args: []string{"create", "id"}, file: "config.json"},
		{name: "finds a process", args: []string{"--log", "/l", "exec", "--process", "/p.json", "--detach", "id"}, file: "/p.json", isProcess: true},
		{name: "ignores a process without a file", args: []string{"exec", "id", "ls"}, isProcess: true},
		{name: "ignores other commands", args: []string{"--root", "/r", "delete", "--force", "id"}},
		{name: "accepts no arguments", args: nil},
		{name: "accepts a flag without its value", args: []string{"--root"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file, isProcess := configuration(test.args)
			assert.Equal(t, test.file, file)
			assert.Equal(t, test.isProcess, isProcess)
		})
	}
}

func TestStripRemovesUnavailableSettings(t *testing.T) {
	process := `{"args":["sh"],"rlimits":[{"type":"RLIMIT_NOFILE","hard":1,"soft":1}],"oomScoreAdj":-999,
		"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"ambient":["CAP_SYS_RESOURCE"]},"noNewPrivileges":true}`
	stripped := `{"args":["sh"],"capabilities":{"bounding":["CAP_CHOWN"],"ambient":[]},"noNewPrivileges":true}`

	t.Run("strips a process", func(t *testing.T) {
		got, err := strip([]byte(process), true)
		require.NoError(t, err)
		assert.JSONEq(t, stripped, string(got))
	})
	t.Run("strips a container's process and keeps the rest", func(t *testing.T) {
		got, err := strip([]byte(`{"ociVersion":"1.0.2","process":`+process+`,"linux":{"resources":{"memory":{"limit":9007199254740993}}}}`), false)
		require.NoError(t, err)
		assert.JSONEq(t, `{"ociVersion":"1.0.2","process":`+stripped+`,"linux":{"resources":{"memory":{"limit":9007199254740993}}}}`, string(got))
		assert.Contains(t, string(got), "9007199254740993", "numbers do not change")
	})
	t.Run("keeps a container without a process", func(t *testing.T) {
		got, err := strip([]byte(`{"ociVersion":"1.0.2"}`), false)
		require.NoError(t, err)
		assert.JSONEq(t, `{"ociVersion":"1.0.2"}`, string(got))
	})
	t.Run("rejects an invalid configuration", func(t *testing.T) {
		_, err := strip([]byte(`[]`), false)
		assert.Error(t, err)
	})
}
