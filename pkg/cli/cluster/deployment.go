package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// OperatorDeployment returns the key of the operator's Deployment.
func OperatorDeployment() client.ObjectKey {
	return client.ObjectKey{Namespace: command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), Name: api.OperatorDeployment}
}

// ReadOperatorDeployment returns the operator's Deployment; nil if the cluster has none, as with an operator outside the cluster.
func ReadOperatorDeployment(ctx context.Context, reader client.Reader, key client.ObjectKey) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	err := reader.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s, which contains the operator's flags: %w", key, err)
	}
	return deployment, nil
}

// OperatorRelease returns the image of the release whose operator the Deployment runs; empty if it is unknown, as with an operator outside
// the cluster.
func OperatorRelease(ctx context.Context, reader client.Reader) string {
	deployment, err := ReadOperatorDeployment(ctx, reader, OperatorDeployment())
	if err != nil || deployment == nil {
		return ""
	}
	image, _ := OperatorFlag(deployment, "--release-image")
	return image
}

// OperatorFlag returns the value of a flag in the operator's Deployment, and whether it is set.
func OperatorFlag(deployment *appsv1.Deployment, flag string) (value string, set bool) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		words := slices.Concat(container.Command, container.Args)
		for n, word := range words {
			rest, ok := strings.CutPrefix(word, flag)
			switch {
			case ok && strings.HasPrefix(rest, "="):
				value, set = rest[1:], true
			case ok && rest == "" && n+1 < len(words):
				value, set = words[n+1], true
			}
		}
	}
	return value, set
}
