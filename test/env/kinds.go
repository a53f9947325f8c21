package env

import (
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cluster-version/cvo/manifests/apicrd"
)

// DefinitionFile returns the path of a definition in the API module.
func DefinitionFile(t testing.TB, name string) string {
	t.Helper()
	dir, err := apicrd.Dir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Serve makes the control plane serve the kind of a definition in the API module until forget is called.
func (e *Env) Serve(t testing.TB, file string) (forget func()) {
	t.Helper()
	options := envtest.CRDInstallOptions{ErrorIfPathMissing: true, MaxTime: time.Minute, Paths: []string{DefinitionFile(t, file)}}
	if _, err := envtest.InstallCRDs(e.Config("test"), options); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := envtest.UninstallCRDs(e.Config("test"), options); err != nil {
			t.Errorf("removing %s: %v", file, err)
		}
	}
}
