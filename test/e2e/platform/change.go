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

// Change edits the manifests of a release before it is created. dir has a folder for each component.
type Change func(dir string) error

// With adds a manifest or replaces the one with the same file name. The name, such as 0000_50_example-dns_20_more.yaml, determines when it
// is applied. Every object needs the annotation Included.
func With(component, file, content string) Change {
	return func(dir string) error {
		folder := filepath.Join(dir, component)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, file), []byte(content), 0o644)
	}
}

// Included is the annotation, as a line of YAML, without which no cluster includes a manifest.
const Included = `include.release.openshift.io/self-managed-high-availability: "true"`

// Without removes a component or, if a file is given, one file of it.
func Without(component string, file ...string) Change {
	return func(dir string) error {
		path := filepath.Join(append([]string{dir, component}, file...)...)
		if _, err := os.Stat(path); err != nil {
			return err
		}
		return os.RemoveAll(path)
	}
}

// Only removes all other components.
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

// Unchanged sets all components except some to a version, so that an update changes nothing else.
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
			return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), manifest.VersionPlaceholder, version)), 0o644)
		})
	}
}

// Edit replaces a text in every manifest of a component that contains it. At least one must contain it.
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
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(data), old, replacement)), 0o644); err != nil {
				return err
			}
		}
		if !edited {
			return fmt.Errorf("no manifest of %s contains %q", component, old)
		}
		return nil
	}
}

// Switch makes a program in a release misbehave. See SetSwitches for key and value.
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

// SetSwitches sets how the programs in a namespace misbehave from now on; nil makes all of them behave. Plain keys are for the operator:
// slow (the time until it reports a version), degraded, unavailable, notUpgradeable, notReady, crashLoop. The keys WORKLOAD.slow (the time
// until it is ready), WORKLOAD.notReady and WORKLOAD.crashLoop are for the pods of a workload and for the Job example-backup. A value that
// ends in @VERSION applies only to programs of that version. The namespace must exist; a test may create it before its release does.
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
