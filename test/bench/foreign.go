package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/test/env"
)

const (
	foreignNamespaces = 50
	foreignWidth      = 64
)

// populate creates n small ConfigMaps and Secrets that belong to no release.
func populate(ctx context.Context, e *env.Env, n int) error {
	if n == 0 {
		return nil
	}
	config := e.Config("bench-foreign")
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := range foreignNamespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: foreignNamespace(i)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating foreign objects: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(foreignWidth)
	for i := range n {
		group.Go(func() error { return createForeign(ctx, client, i) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("creating foreign objects: %w", err)
	}
	return nil
}

func foreignNamespace(i int) string { return fmt.Sprintf("foreign-%02d", i%foreignNamespaces) }

func createForeign(ctx context.Context, client kubernetes.Interface, i int) (err error) {
	meta := metav1.ObjectMeta{Namespace: foreignNamespace(i), Name: fmt.Sprintf("foreign-%06d", i)}
	value := fmt.Sprintf("content of foreign object %d", i)
	if i%2 == 0 {
		object := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": value}}
		_, err = client.CoreV1().ConfigMaps(meta.Namespace).Create(ctx, object, metav1.CreateOptions{})
	} else {
		object := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": value}}
		_, err = client.CoreV1().Secrets(meta.Namespace).Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}
