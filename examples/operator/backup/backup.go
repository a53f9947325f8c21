// Package backup implements the Job of the example platform. Before anything else changes, it writes the platform's custom objects to a ConfigMap,
// and deletes the oldest backups.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/examples/operator/switches"
)

// Options select the objects to save, and their destination.
type Options struct {
	// Namespace is the namespace of the Job and its ConfigMaps.
	Namespace string
	// To is the name of the ConfigMap.
	To string
	// Kinds are the saved kinds of group platform.example.com. Kinds that the cluster lacks are skipped.
	Kinds []string
	// Workload and Version identify this program in switches.
	Workload, Version string
	// Switches apply unless the ConfigMap of switches sets the same key.
	Switches map[string]string
	// Clock measures the delay of a switch.
	Clock clock.Clock
}

const (
	// label marks the ConfigMaps with backups.
	label = "platform.example.com/backup"
	// retention is the ConfigMap whose key keep sets the number of backups to keep.
	retention = "retention"
	// most is the maximum size of the data, which leaves room for the rest of a ConfigMap.
	most = 900 << 10
)

// Run creates one backup.
func Run(ctx context.Context, config *rest.Config, opts Options) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	if err := applySwitches(ctx, c, opts); err != nil {
		return err
	}
	data := map[string]string{}
	size := 0
	for _, kind := range opts.Kinds {
		text, err := read(ctx, c, kind)
		if err != nil {
			return fmt.Errorf("reading objects of kind %s: %w", kind, err)
		}
		if size += len(text); size > most {
			return fmt.Errorf("saving objects of kind %s: together they have more than %d bytes, the limit of a ConfigMap", kind, most)
		}
		if text != "" {
			data[strings.ToLower(kind)+".json"] = text
		}
	}
	saved := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: opts.Namespace, Name: opts.To, Labels: map[string]string{label: "true"}},
		Data:       data,
	}
	// Another pod of this Job may have created it. That backup is as old as the Job, which is the intended state.
	if err := c.Create(ctx, saved); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", opts.Namespace, opts.To, err)
	}
	logr.FromContextOrDiscard(ctx).Info("saved", "configmap", opts.To, "bytes", size)
	return prune(ctx, c, opts)
}

// applySwitches applies the switches of a Job: a delay and a crash.
func applySwitches(ctx context.Context, c client.Client, opts Options) error {
	config := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: opts.Namespace, Name: switches.ConfigMap}, config); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s/%s: %w", opts.Namespace, switches.ConfigMap, err)
	}
	set, err := switches.Read(switches.Merge(opts.Switches, config.Data), opts.Workload, opts.Version)
	if err != nil {
		return err
	}
	if set.CrashLoop {
		return errors.New("crashing because of a switch")
	}
	select {
	case <-opts.Clock.After(set.Slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func read(ctx context.Context, c client.Client, kind string) (string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "platform.example.com", Version: "v1", Kind: kind + "List"})
	if err := c.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil // a later runlevel creates it
	} else if err != nil {
		return "", err
	}
	text, err := json.Marshal(list.Items)
	return string(text), err
}

// prune deletes the oldest backups that exceed the number to keep.
func prune(ctx context.Context, c client.Client, opts Options) error {
	keep := 3
	config := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: opts.Namespace, Name: retention}, config)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s/%s: %w", opts.Namespace, retention, err)
	}
	if text, said := config.Data["keep"]; said {
		if keep, err = strconv.Atoi(text); err != nil || keep < 1 {
			return fmt.Errorf("ConfigMap %s/%s: keep: %q is not a positive number", opts.Namespace, retention, text)
		}
	}
	backups := &corev1.ConfigMapList{}
	if err := c.List(ctx, backups, client.InNamespace(opts.Namespace), client.MatchingLabels{label: "true"}); err != nil {
		return fmt.Errorf("listing backups: %w", err)
	}
	slices.SortFunc(backups.Items, func(a, b corev1.ConfigMap) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(b.Name, a.Name)
	})
	for _, old := range backups.Items[min(keep, len(backups.Items)):] {
		if err := client.IgnoreNotFound(c.Delete(ctx, &old)); err != nil {
			return fmt.Errorf("deleting backup %s: %w", old.Name, err)
		}
	}
	return nil
}
