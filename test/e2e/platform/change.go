package platform

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/examples/operator/switches"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Change edits the manifests of a release, one folder for each component, before it is made.
type Change func(dir string) error

// With adds a manifest, or replaces the one that has the file name. A name such as 0000_50_example-dns_20_more.yaml says
// when it is applied. Every object needs the annotation Included.
func With(component, file, content string) Change {
	return func(dir string) error {
		folder := filepath.Join(dir, component)
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // manifests are no secret
			return err
		}
		return os.WriteFile(filepath.Join(folder, file), []byte(content), 0o644) //nolint:gosec // manifests are no secret
	}
}

// Included is the annotation without which a manifest is in no cluster, as a line of YAML.
const Included = `include.release.openshift.io/self-managed-high-availability: "true"`

// Without takes a component away; or, with a file, one file of it.
func Without(component string, file ...string) Change {
	return func(dir string) error {
		path := filepath.Join(append([]string{dir, component}, file...)...)
		if _, err := os.Stat(path); err != nil {
			return err
		}
		return os.RemoveAll(path)
	}
}

// Only takes all components away but some.
func Only(components ...string) Change {
	return func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if entry.IsDir() && !slices.Contains(components, entry.Name()) {
				if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// Unchanged leaves all components at a version, but some, so that an update brings nothing else.
func Unchanged(version string, but ...string) Change {
	return func(dir string) error {
		return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case slices.Contains(but, entry.Name()):
				return fs.SkipDir
			case entry.IsDir():
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), manifest.VersionPlaceholder, version)), 0o644) //nolint:gosec // manifests are no secret
		})
	}
}

// Edit changes every manifest of a component that contains a text, of which there must be one.
func Edit(component, old, replacement string) Change {
	return func(dir string) error {
		files, err := filepath.Glob(filepath.Join(dir, component, "*.yaml"))
		if err != nil {
			return err
		}
		edited := false
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !strings.Contains(string(data), old) {
				continue
			}
			edited = true
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(data), old, replacement)), 0o644); err != nil { //nolint:gosec // manifests are no secret
				return err
			}
		}
		if !edited {
			return fmt.Errorf("no manifest of %s contains %q", component, old)
		}
		return nil
	}
}

// Switch has a release bring a program that misbehaves, see SetSwitches for key and value.
func Switch(component, key, value string) Change {
	const operator = "        - operator\n"
	argument := "        - --switch=" + key + "=" + value + "\n"
	workload, _, isWorkload := strings.Cut(key, ".")
	if !isWorkload {
		return Edit(component, operator, operator+argument)
	}
	named := "        - --workload=" + workload + "\n"
	return Edit(component, named, named+argument)
}

// SetSwitches has the programs in a namespace misbehave from now on, and behave as to all else; nil makes them behave.
// Bare keys are for the operator: slow (a duration that it takes to report a version), degraded, unavailable,
// notUpgradeable, notReady, crashLoop. WORKLOAD.slow (a duration to be ready after), WORKLOAD.notReady and
// WORKLOAD.crashLoop are for the pods of a workload, and for the Job example-backup. A value that ends in @VERSION is
// for programs of that version alone. The namespace must exist: one that no release has brought yet can be made before.
func SetSwitches(ctx context.Context, client kubernetes.Interface, namespace string, entries map[string]string) error {
	configs := client.CoreV1().ConfigMaps(namespace)
	if entries == nil {
		err := configs.Delete(ctx, switches.ConfigMap, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for key, value := range entries {
		workload := ""
		if dot := strings.LastIndexByte(key, '.'); dot >= 0 {
			workload = key[:dot]
		}
		_, version, _ := strings.Cut(value, "@")
		if _, err := switches.Read(map[string]string{key: value}, workload, version); err != nil {
			return err
		}
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: switches.ConfigMap}, Data: entries}
	_, err := configs.Create(ctx, config, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configs.Update(ctx, config, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("setting switches in namespace %s: %w", namespace, err)
	}
	return nil
}
